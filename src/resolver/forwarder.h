// `forward`: asks other servers, and gives their answers back later. One per server block and loop; loop thread only,
// but for make(). Queries for one question share one exchange (forward_exchange.h) with a random port and ID (RFC
// 5452). A server has kAttemptTime, all together kTotalTime; then the client gets SERVFAIL. Questions in flight are
// bounded, and clients share them fairly (waiting_clients.h). Shared answers leave over some time, the longest waiting
// clients first (LateAnswers).
#pragma once

#include "base/ip_address.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/result.h"
#include "dns/name.h"
#include "dns/query.h"
#include "net/event_loop.h"
#include "resolve/request.h"
#include "resolver/counters.h"
#include "resolver/stored_response.h"
#include "resolver/upstream.h"
#include "resolver/upstream_budget.h"
#include "resolver/zone_limiter.h"

namespace idetcd::resolver {

// The origin of a question, as far as sharing is concerned: clients that wait for upstreams have equal shares of what
// there is.
//
// A client is an IPv4 address or an IPv6 /64, which is what one subscriber or machine has; of a link-local address the
// interface identifier, since all of a link share its /64. On loopback each source port is a client: there are many
// programs behind one address, and none of them can lie about it. Plain values; any thread.
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
  // A question of this process itself, as for the names of its etcd: waiting queries make room for it.
  bool urgent = false;

  static QueryOrigin of(const dns::Query& query, const resolve::Request& request);
};

// The result of a question that was forwarded.
struct ForwardResult {
  // The upstream's answer, whatever its rcode; null: none answered, or none was asked.
  std::shared_ptr<const StoredResponse> response;
  // Without a response: what the client gets, and what `errors` writes.
  dns::Rcode rcode = dns::Rcode::kNoError;  // SERVFAIL or REFUSED; with a response, its rcode
  std::optional<dns::EdeCode> ede;
  std::string reason;
  // There was no room to ask a server, or the question was given up before its time: nothing to remember.
  bool overloaded = false;
  // `next` names this rcode, or `next_on_nodata` this answer: the handler behind this one is to be asked.
  bool next = false;
};

struct ForwardFiles;

class Forwarder {
 public:
  static constexpr size_t kMaxTargets = 15;
  static constexpr std::chrono::milliseconds kAttemptTime{2000};
  // Clients wait five seconds, and get SERVFAIL before they are over: even the last of as many as may wait, since
  // answers leave at a bounded pace (LateAnswers).
  static constexpr std::chrono::milliseconds kTotalTime{4500};

  enum class Policy : uint8_t { kRandom, kRoundRobin, kSequential };

  struct HealthCheck {
    std::chrono::milliseconds interval{500};
    bool recursion_desired = true;  // `no_rec` clears it
    dns::Name domain;               // what a probe asks the NS of
  };

  struct Tls {  // files in PEM; all may be empty
    std::string certificate_file;
    std::string key_file;
    std::string ca_file;      // empty: the system's
    std::string server_name;  // empty: the certificate must name the IP address
  };

  struct Options {
    std::vector<dns::Name> from{dns::Name{}};
    std::vector<UpstreamTarget> to;          // at most kMaxTargets servers, those in files too
    std::vector<SocketAddress> resolvers{};  // of the hosts among `to`; empty: those of /etc/resolv.conf
    std::vector<dns::Name> except;
    bool force_tcp = false;
    bool prefer_udp = false;  // else a query over TCP is forwarded over TCP
    std::chrono::milliseconds expire{10000};
    std::chrono::milliseconds max_age{0};          // of a connection to a server; 0: as long as it is used
    size_t max_idle_conns = 0;                     // to a server; 0: up to the maxima of StreamPool
    std::optional<IpAddress> source_address{};     // of what is sent to servers of its family
    size_t max_connect_attempts = 0;               // servers that a question goes to, one after the other; 0: all
    size_t udp_payload = dns::kDefaultUdpPayload;  // that is offered to servers (RFC 6891 §6.2.3): 512 at least
    uint32_t max_fails = 2;                        // 0: no server is ever thought to be down
    Tls tls;
    DohMethod doh_method = DohMethod::kPost;
    Policy policy = Policy::kRandom;
    HealthCheck health_check;
    size_t max_concurrent = 0;  // client queries; beyond it REFUSED. 0: up to the maxima below, then SERVFAIL
    std::vector<dns::Rcode> next;
    bool next_on_nodata = false;  // as if `next` named NOERROR without an answer
    // Rcodes of a server that will not or cannot answer: the next one is asked.
    std::vector<dns::Rcode> failover{dns::Rcode::kFormErr, dns::Rcode::kServFail, dns::Rcode::kNotImp,
                                     dns::Rcode::kRefused};
    bool failfast_all_unhealthy_upstreams = false;
    bool cookies = true;           // DNS cookies are sent (upstream_cookie.h)
    bool use_caps_for_id = false;  // forward_exchange.h
    bool trust_ad = false;  // AD of answers in plain text is passed on, as those from encrypted servers always are

    // Names beside `from` in the server block and its directives: no special names (special_names.h) within these.
    std::vector<dns::Name> named;

    // Not from the Corefile.
    std::vector<SocketAddress> own;  // where this process listens (an unspecified IP: on every address): never asked
    size_t max_in_flight = 12000;    // questions
    metrics::Scope metrics{};
    std::shared_ptr<const ForwardFiles> files{};  // of these options; never null
    std::shared_ptr<UpstreamBudget> room{};          // shared with the other Forwarders of the loop; null: without bound
    std::shared_ptr<ZoneLimiter> zones{};         // shared with the others of the block; null: no limit
    size_t max_waiting = 50000;                   // client queries
    std::chrono::milliseconds attempt_time = kAttemptTime;
    std::chrono::milliseconds total_time = kTotalTime;
    std::chrono::milliseconds least_timeout{0};     // no datagram is taken for lost before, whatever is usual
    std::chrono::milliseconds file_interval{1000};  // how often a file is looked at for changes
  };

  // Called at most once, on the loop's thread, possibly before resolve() returns. Destroying the Forwarder destroys the
  // callbacks that wait, uncalled. A callback may call resolve(), but must not destroy the Forwarder.
  using Callback = std::function<void(const ForwardResult&)>;

  // The error names what is wrong with the options: no server, too many. Or there is no descriptor left.
  static Result<std::unique_ptr<Forwarder>> make(net::EventLoop& loop, Options options, Logger log);
  ~Forwarder();
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;

  // Whether `from` and `except` leave this name to us, and it may be asked of these servers (special_names.h).
  bool serves(const dns::Query& query) const;
  // The result that `done` will get.
  enum class Wait : uint8_t {
    kForAll,     // the answer; it may have been called already
    kForLittle,  // an answer that must not be much larger than the query (of `origin.query_size`)
    kForNothing  // `done` has been destroyed uncalled: this is a retransmission of a query that waits
  };
  // `query` is borrowed for this call. Of it count the question, RD, CD, AD and DO; what else a client sends is not
  // forwarded.
  Wait resolve(const dns::Query& query, const QueryOrigin& origin, Callback done);
  void resolve(const dns::Query& query, resolve::Transport transport, Callback done) {  // for ourselves
    resolve(query, QueryOrigin{.transport = transport}, std::move(done));
  }
  // To be called by a callback whose client gets nothing yet: it takes no part of the pace at which answers leave.
  void noteDeferred();
  // The size of the response for kForLittle.
  static size_t truncationLimit(const QueryOrigin& origin) { return std::min(origin.response_limit, 2 * origin.query_size); }

  size_t waiting() const;  // callbacks that have not been called yet
  // How long all of the servers have said nothing since they were asked; the maximum: all of them are down.
  std::chrono::nanoseconds silence(BootClock::time_point now) const;
  // Of the servers in use now, in the order of `to`.
  std::vector<UpstreamAddress> upstreams() const;
  // Reports of the upstreams, to be read on any thread; of those that were in use last when this is gone.
  std::shared_ptr<const ServerReports> reports() const;
  // Named in `to`, but this process itself: never asked.
  std::vector<UpstreamAddress> ourselves() const;

 private:
  struct Impl;
  explicit Forwarder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace idetcd::resolver
