// The origin of a question, as far as sharing is concerned: clients that wait for upstreams have equal shares of what
// there is.
//
// A client is an IPv4 address or an IPv6 /64, which is what one subscriber or machine has; of a link-local address the
// interface identifier, since all of a link share its /64. On loopback each source port is a client: there are many
// programs behind one address, and none of them can lie about it. Plain values; any thread.
#pragma once

#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::resolver {

struct ClientId {
  enum class Kind : uint8_t { kOurselves, kIpv4, kIpv6, kLinkLocal, kLoopback };

  uint64_t address = 0;
  uint32_t port = 0;  // loopback only
  Kind kind = Kind::kOurselves;

  bool isOurselves() const { return kind == Kind::kOurselves; }
  bool operator==(const ClientId&) const = default;

  // kOurselves for null and for what is no IP address.
  static ClientId of(const sockaddr* source);
};

// A default one is ourselves: no client waits.
struct QueryOrigin {
  ClientId client{};
  uint16_t port = 0;
  uint16_t id = 0;  // of the message
  resolve::Transport transport = resolve::Transport::kUdp;
  size_t query_size = 0;      // what it has sent
  size_t response_limit = 0;  // what it may get
  // No client gets the answer: it is asked so that the next client finds one. Charged to the client that caused it.
  bool background = false;
  // What this process itself needs, as the names of its etcd: waiting queries make room for it.
  bool urgent = false;

  static QueryOrigin of(const dns::Query& query, const resolve::Request& request);
};

}  // namespace idetcd::resolver
