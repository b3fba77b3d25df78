// `forward`: asks other servers, and gives their answers back later. One per server block and loop; loop thread only,
// but for make(), which may run before the loop does.
//
// A question that is on its way already is not sent again: all who ask it share the answer. It leaves from a socket of
// its own with a random port and a random ID, and only the server that was asked can answer it (RFC 5452). A datagram
// that is not answered within the server's usual time is sent once more (forward_exchange.h). A server has kAttemptTime
// after that, all of them together have kTotalTime; then the client is told SERVFAIL. What is in flight is bounded in
// number, and so in memory and descriptors; clients share it fairly (waiting_clients.h): who has to give way is told
// SERVFAIL at once. The answer of a question for which many wait leaves over some time (late_answers.h), to those first
// who have waited longest.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "dns/name.h"
#include "dns/query.h"
#include "net/descriptor_budget.h"
#include "net/event_loop.h"
#include "resolve/asker.h"
#include "resolve/request.h"
#include "resolve/stored_response.h"
#include "resolve/upstream.h"

namespace idetcd::resolve {

// What became of a question that was forwarded.
struct ForwardResult {
  // What the upstream said, whatever its rcode; null: none answered, or none was asked.
  std::shared_ptr<const StoredResponse> response;
  // Without a response: what the client is told, and what `errors` writes.
  dns::Rcode rcode = dns::Rcode::kNoError;  // SERVFAIL or REFUSED; with a response, its rcode
  std::optional<dns::EdeCode> ede;
  std::string reason;
  // For want of room nobody was asked, or the question was given up before its time: nothing to remember.
  bool overloaded = false;
  // `next` names this rcode: the handler behind this one is to be asked.
  bool next = false;
};

class Forwarder {
 public:
  static constexpr size_t kMaxTargets = 15;
  static constexpr std::chrono::milliseconds kAttemptTime{2000};
  // The client waits five seconds, and hears of the failure before they are over.
  static constexpr std::chrono::milliseconds kTotalTime{4800};

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
    std::vector<UpstreamTarget> to;  // at most kMaxTargets servers, those in files too
    std::vector<dns::Name> except;
    bool force_tcp = false;
    bool prefer_udp = false;  // else who asks over TCP is asked for over TCP
    std::chrono::milliseconds expire{10000};
    uint32_t max_fails = 2;  // 0: no server is ever thought to be down
    Tls tls;
    Policy policy = Policy::kRandom;
    HealthCheck health_check;
    size_t max_concurrent = 0;  // client queries; beyond it REFUSED. 0: up to the maxima below, then SERVFAIL
    std::vector<dns::Rcode> next;
    // What a server says that will not or cannot answer: the next one is asked.
    std::vector<dns::Rcode> failover{dns::Rcode::kFormErr, dns::Rcode::kServFail, dns::Rcode::kNotImp,
                                     dns::Rcode::kRefused};
    bool failfast_all_unhealthy_upstreams = false;
    bool trust_ad = false;  // AD of answers in plain text is passed on, as those from tls:// always are

    // What the server block and its directives name beside `from`: no special names (special_names.h) within these.
    std::vector<dns::Name> named;

    // Not from the Corefile.
    std::vector<SocketAddress> own;  // where this process listens (an unspecified IP: on every address): never asked
    size_t max_in_flight = 12000;    // questions
    std::shared_ptr<net::DescriptorBudget> descriptors{};  // for datagrams to upstreams; null: no bound
    size_t max_waiting = 50000;                            // client queries
    std::chrono::milliseconds attempt_time = kAttemptTime;
    std::chrono::milliseconds total_time = kTotalTime;
    std::chrono::milliseconds file_interval{1000};  // how often a file is looked at for changes
  };

  struct Counters {
    uint64_t queries = 0;             // resolve() calls
    uint64_t merged = 0;              // of them, those that joined a question in flight
    uint64_t attempts = 0;            // messages sent to upstreams, without health checks
    uint64_t repeated = 0;            // of them, datagrams sent because another one seemed to be lost
    uint64_t discarded = 0;           // received, but no answer to what was asked
    uint64_t failed = 0;              // SERVFAIL of our own
    uint64_t absorbed = 0;            // retransmissions of who waits already
    uint64_t evicted = 0;             // queries that gave way to those of a client with less
    uint64_t concurrent_rejects = 0;  // coredns_forward_max_concurrent_rejects_total
    uint64_t healthcheck_broken = 0;  // coredns_forward_healthcheck_broken_total
    uint64_t healthcheck_failures = 0;
  };

  // Called at most once, on the loop's thread, possibly before resolve() returns. Destroying the Forwarder destroys the
  // callbacks that wait, uncalled. A callback may call resolve(), but must not destroy the Forwarder.
  using Callback = std::function<void(const ForwardResult&)>;

  // The error names what is wrong with the options: no server, too many, a file that cannot be read, TLS files.
  static Result<std::unique_ptr<Forwarder>> make(net::EventLoop& loop, Options options, Logger log);
  ~Forwarder();
  Forwarder(const Forwarder&) = delete;
  Forwarder& operator=(const Forwarder&) = delete;

  // Whether `from` and `except` leave this name to us, and it may be asked of these servers (special_names.h).
  bool serves(const dns::Query& query) const;
  // What `done` will get.
  enum class Wait : uint8_t {
    kForAll,     // the answer; it may have been called already
    kForLittle,  // an answer that must not be much larger than the query (of `asker.query_size`)
    kForNothing  // `done` has been destroyed uncalled: this is a retransmission of a query that waits
  };
  // `query` is borrowed for this call. Of it count the question, RD, CD, AD and DO; what else a client says is between
  // it and us.
  Wait resolve(const dns::Query& query, const Asker& asker, Callback done);
  void resolve(const dns::Query& query, Transport transport, Callback done) {  // for ourselves
    resolve(query, Asker{.transport = transport}, std::move(done));
  }
  // The size of response for who waits for little.
  static size_t littleResponse(const Asker& asker) { return std::min(asker.response_limit, 2 * asker.query_size); }

  const Counters& counters() const;
  size_t waiting() const;  // callbacks that have not been called yet
  // Of the servers in use now, in the order of `to`.
  std::vector<UpstreamAddress> upstreams() const;
  // Named in `to`, but this process itself: never asked.
  std::vector<UpstreamAddress> ourselves() const;

 private:
  struct Impl;
  explicit Forwarder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace idetcd::resolve
