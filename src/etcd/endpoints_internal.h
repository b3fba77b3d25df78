// The endpoints of a Client, a channel to each, and which of them is in use. For etcd/*.cc only.
// Completion thread only, save where noted.
//
// The first one is home: where the client begins and where it returns to (Client::returnHome()). With Options::spread
// the order is random, another one in each client: so homes are spread over the members, and the clients of a member
// that dies are spread over those that are left.
//
// An index stays that of its endpoint: one that is listed no more keeps its place, without its connection, and is not
// chosen any more; listed again, it has the place still. What is under way at it goes on.
#pragma once

#include <list>
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

  // As Client::setEndpoints(). Reads files, if there are TLS files and no endpoint was listed before. False: other
  // endpoints than before are to be asked for their cluster before the next call chooses among them.
  bool set(const std::vector<std::string>& list);

  size_t count() const { return count_; }  // of those that are listed
  // Calls `each` with the index of each that is listed.
  void visit(const std::function<void(size_t)>& each) const;
  // The listed one behind `index`, around the end; itself if there is no other.
  size_t after(size_t index) const;
  size_t home() const { return home_; }
  size_t current() const { return current_.load(std::memory_order_relaxed); }  // any thread
  // Any thread, if set() is not under way.
  const std::string& name(size_t index) const { return endpoints_[index].address.name; }
  // The channel for a new call. TLS: with the newest certificates, unless it has a connection already.
  const std::shared_ptr<grpc::Channel>& channel(size_t index);

  // All endpoints have to lead to one cluster: that of most of those that have said theirs, and of several such, that
  // of the first as configured. The others, and etcd's grpc-proxy, are strangers, and are not used. Asked once for each
  // connection.
  bool isIdentified(size_t index) const;
  bool isStranger(size_t index) const { return endpoints_[index].is_stranger || endpoints_[index].is_proxy; }
  // Whether it ever has said its cluster.
  bool isKnown(size_t index) const { return endpoints_[index].cluster_id != 0; }
  // `cluster_id`: 0: it cannot be asked.
  void identified(size_t index, uint64_t cluster_id);
  // It is etcd's grpc-proxy: what it answers itself is of no cluster (ID 0). So it is held for one as long as it is listed.
  void foundProxy(size_t index);
  std::vector<Store::UnusedEndpoint> unused() const;  // any thread

  // Ends the connection, if it is not in use: nobody is to hold one to every member.
  void disconnect(size_t index) {
    if (index != current()) endpoints_[index].channel.reset();
  }

  // The outcome of a call. A failure makes the next endpoint the current one, but only if `index` still is: of several
  // calls that fail together only the first moves on, and a late failure at the old endpoint does not abandon the new
  // one.
  void succeeded(size_t index);
  void failed(size_t index, const StoreError& error);
  // How often a connection has broken under a call or a stream.
  uint64_t breaks() const { return breaks_; }
  void broke() { ++breaks_; }
  // For Client::returnHome(). Home becomes the current one.
  void settleHome() { current_.store(home_, std::memory_order_relaxed); }

 private:
  // The endpoint's state as logged last: each change is logged once.
  enum class Reported { kNothing, kAway, kTlsFails };
  struct Endpoint {
    EndpointAddress address;
    std::string text = {};  // as configured
    bool is_listed = false;
    bool was_listed = false;  // for set()
    std::shared_ptr<grpc::Channel> channel = {};  // null: there is no connection, and nothing is waited for
    uint64_t tls_generation = 0;  // of what the channel was made with
    bool unresolved = false;      // its name could not be looked up
    BootClock::time_point resolve_at{};
    Reported reported = Reported::kNothing;
    int64_t configured = 0;   // the order in which they came to be listed
    uint64_t cluster_id = 0;  // 0: not known
    bool is_identified = false;
    bool is_stranger = false;
    bool is_proxy = false;
  };

  grpc_connectivity_state stateOf(const Endpoint& endpoint) const {
    return endpoint.channel ? endpoint.channel->GetState(false) : GRPC_CHANNEL_IDLE;
  }
  void leave(size_t index);  // another one becomes the current one, if this one is
  size_t anyListed();  // REQUIRES: there is one
  void judgeStrangers();
  void publishUnused();
  void lookAtTlsFiles();
  std::shared_ptr<grpc::Channel> makeChannel(const Endpoint& endpoint) const;

  const Client::Options options_;  // its list is that of the start
  const grpc::ChannelArguments arguments_;
  const std::chrono::nanoseconds resolve_interval_;
  uint64_t breaks_ = 0;
  const std::shared_ptr<Counters> counters_;  // shared with the client, which may be gone before us
  Logger log_;
  std::optional<TlsWatch> tls_;  // none: plain, every endpoint
  BootClock::time_point tls_looked_at_;
  std::minstd_rand random_;  // for jitter
  std::vector<Endpoint> endpoints_;
  int64_t configured_ = 0;
  size_t count_ = 0;  // listed
  size_t home_ = 0;
  std::atomic<size_t> current_{0};  // relaxed: an index that guards nothing

  struct Unused {
    Unused(Store::UnusedEndpoint endpoint, const metrics::Scope& scope)
        : said(std::move(endpoint)),
          gauge(scope, "idetcd_etcd_endpoint_unused",
                "Endpoints that are of another cluster than the others, or etcd's grpc-proxy.", [] { return 1.0; }) {}
    Store::UnusedEndpoint said;
    metrics::GaugeFunction gauge;
  };
  mutable std::mutex unused_mutex_;
  std::list<Unused> unused_;  // guarded by it
};

}  // namespace idetcd::etcd
