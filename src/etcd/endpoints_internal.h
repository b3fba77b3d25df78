// The endpoints of a Client, a channel to each, and which of them is in use. For etcd/*.cc only.
// Completion thread only, save where noted.
//
// The first one is home: where the client begins and where it returns to (Client::returnHome()). With Options::spread
// the order is random, another one in each client: so homes are spread over the members, and the clients of a member
// that dies are spread over those that are left.
#pragma once

#include <random>

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "etcd/client.h"
#include "etcd/counters_internal.h"
#include "etcd/tls_source_internal.h"

namespace idetcd::etcd {

struct EndpointAddress {
  enum class Scheme { kNone, kHttp, kHttps };
  Scheme scheme = Scheme::kNone;
  std::string name;    // "host:port", IPv6 in brackets: for messages
  std::string target;  // what gRPC connects to
  bool usesTls(const Client::Options& options) const {
    return scheme == Scheme::kHttps || (scheme == Scheme::kNone && options.tls);
  }
  static Result<EndpointAddress> parse(std::string_view text);  // any thread
};

class Endpoints {
 public:
  // Makes no connection yet, but reads files. Any thread.
  Endpoints(const Client::Options& options, std::shared_ptr<Counters> counters, Logger log);

  static constexpr size_t kHome = 0;

  size_t size() const { return endpoints_.size(); }
  // Relaxed: an index that guards nothing; the endpoints themselves never change.
  size_t current() const { return current_.load(std::memory_order_relaxed); }             // any thread
  const std::string& name(size_t index) const { return endpoints_[index].address.name; }  // any thread
  // The channel for a new call. TLS: with the newest certificates, unless it has a connection already.
  const std::shared_ptr<grpc::Channel>& channel(size_t index);

  // All endpoints have to lead to one cluster: that of most of those that have said theirs, and of several such, that
  // of the first as configured. The others are strangers, and are not used. Asked once for each connection.
  bool isIdentified(size_t index) const;
  bool isStranger(size_t index) const { return endpoints_[index].is_stranger; }
  // Whether it ever has said its cluster.
  bool isKnown(size_t index) const { return endpoints_[index].cluster_id != 0; }
  // `cluster_id`: 0: it cannot be asked.
  void identified(size_t index, uint64_t cluster_id);

  // Ends the connection, if it is not in use: nobody is to hold one to every member.
  void disconnect(size_t index) {
    if (index != current()) renewChannel(endpoints_[index]);
  }

  // What became of a call. A failure makes the next endpoint the current one, but only if `index` still is: of several
  // calls that fail together only the first moves on, and a late failure at the old endpoint does not abandon the new
  // one.
  void succeeded(size_t index);
  void failed(size_t index, const StoreError& error);
  // For Client::returnHome(). Home becomes the current one.
  void settleHome() { current_.store(kHome, std::memory_order_relaxed); }

 private:
  // What the log says of an endpoint now: each change is logged once.
  enum class Reported { kNothing, kAway, kTlsFails };
  struct Endpoint {
    EndpointAddress address;
    std::shared_ptr<grpc::Channel> channel;
    uint64_t tls_generation = 0;  // of what the channel was made with
    bool unresolved = false;      // its name could not be looked up
    BootClock::time_point resolve_at;
    Reported reported = Reported::kNothing;
    size_t configured = 0;    // its place in the list
    uint64_t cluster_id = 0;  // 0: not known
    bool is_identified = false;
    bool is_stranger = false;
  };

  void judgeStrangers();
  void lookAtTlsFiles();
  void renewChannel(Endpoint& endpoint);
  std::shared_ptr<grpc::Channel> makeChannel(const Endpoint& endpoint) const;

  const grpc::ChannelArguments arguments_;
  const std::chrono::nanoseconds resolve_interval_;
  const std::shared_ptr<Counters> counters_;  // shared with the client, which may be gone before us
  Logger log_;
  std::optional<TlsWatch> tls_;  // none: plain, every endpoint
  BootClock::time_point tls_looked_at_;
  std::minstd_rand random_;  // for jitter
  std::vector<Endpoint> endpoints_;
  std::atomic<size_t> current_{0};
};

}  // namespace idetcd::etcd
