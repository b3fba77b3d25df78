// Routes a query to the server block of the longest zone and runs that block's chain. DS of a block's zone goes to the block
// that knows its parent, if another one does (RFC 4035 §3.1.4.1). The Gate (`acl`) comes first,
// also for unreadable messages: it judges by the question's block if there is one, else by the root's block without a
// type, else by the strictest of this listener's blocks. Cookies are judged before that, by the block of the shortest
// zone where no other has the name. One loop; inside a ReadSection; allocates only for a line of `log` or of errors.
#pragma once

#include "base/hash.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolve/chain.h"
#include "resolve/query_meter.h"
#include "resolve/query_samples.h"
#include "resolve/request.h"

namespace idetcd::resolve {

// Straight to the cluster's names: nothing comes before them, no other block has names in their zone, and all that is done
// besides is that what a block with `prometheus` answers is counted. Straight to the handlers: the block has nothing beside
// them for an ordinary query.
enum class Shortcut : uint8_t { kNone, kCluster, kMeteredCluster, kHandlers };

// A query on its way through the three passes over a batch.
struct Job {
  dns::Query query;
  dns::ParseOutcome outcome = dns::ParseOutcome::kDrop;
  const Chain* chain = nullptr;  // null: no zone of this listener holds the name
  QueryMeter* meter = nullptr;   // null: it is not counted
  Shortcut shortcut = Shortcut::kNone;
  QueryOutcome answered;  // by answerInBatch(), if the shortcut is kMeteredCluster
};

class Router : public std::enable_shared_from_this<Router> {
 public:
  struct Zone {
    dns::Name name;
    std::shared_ptr<const Chain> chain;
    std::shared_ptr<QueryMeter> meter = nullptr;  // null: its queries are not counted
  };

  // REQUIRES: no name twice. `unrouted` counts what no zone holds or what cannot be read, and `samples` are this loop's;
  // both may be null.
  Router(std::vector<Zone> zones, HashSeed seed, std::shared_ptr<QueryMeter> unrouted = nullptr,
         std::shared_ptr<QuerySamples> samples = nullptr);

  // Pass 1: parses, routes, and begins to fetch what pass 2 reads. REQUIRES of `message`: as parseQuery().
  [[gnu::always_inline]] void begin(Job& job, uint8_t* message, size_t size) const {
    job.chain = nullptr;
    job.shortcut = Shortcut::kNone;
    job.outcome = dns::parseQuery(message, size, seed_, job.query);
    if (job.outcome != dns::ParseOutcome::kQuery) return beginOther(job);
    const Route* found = route(job.query);
    if (found == nullptr) return;
    if (job.query.qtype == dns::code(dns::RrType::kDs)) [[unlikely]]
      return beginDs(job, *found);
    job.chain = found->chain.get();
    job.meter = found->meter.get();
    const bool ordinary = job.query.qclass == dns::code(dns::RrClass::kIn) && job.query.asked_options == 0;
    job.shortcut = ordinary ? found->shortcut : Shortcut::kNone;
    job.chain->prefetchBucket(job.query);
  }
  // After begin(): whatever it asks, the answer is `error`.
  static void reject(Job& job, dns::Rcode error) {
    job.query.error = error;
    job.outcome = dns::ParseOutcome::kError;
    job.chain = nullptr;
    job.shortcut = Shortcut::kNone;
  }
  // Pass 2: begins to fetch what pass 3 reads.
  void prefetch(const Job& job) const {
    if (job.chain != nullptr) job.chain->prefetchEntry(job.query);
  }
  // The UDP client's limit, but no more than `bufsize`.
  static size_t udpResponseLimit(const Job& job) {
    if (!job.query.has_edns) return dns::kMinUdpPayload;
    return std::min<size_t>(job.query.udp_payload,
                            job.chain != nullptr ? job.chain->parts.bufsize : dns::kDefaultUdpPayload);
  }
  // Pass 3: writes the response over the query, unless it is dropped or pending. Never kNext.
  QueryOutcome answer(Job& job, Request& request) const {
    return job.shortcut == Shortcut::kCluster ? job.chain->askCluster(job.query, request) : serve(job, request);
  }
  // The same for a query of a batch that came over UDP, whose end countBatch() is told before its answers can leave.
  [[gnu::always_inline]] QueryOutcome answerInBatch(Job& job, Request& request) const {
    if (job.shortcut == Shortcut::kCluster) return serveDirectly(job, request);
    if (job.shortcut == Shortcut::kHandlers) return serveHandlers(job, request);
    return job.shortcut == Shortcut::kMeteredCluster ? serveUncounted(job, request) : serve(job, request);
  }
  // Counts what of the batch is not counted yet. `local`: where it came in.
  void countBatch(std::span<const Job> jobs, const SocketAddress& local) const {
    if (!meters_.empty()) count(jobs, local);
  }
  // After begin(): it is not answered at all, and not counted.
  static void pass(Job& job) { job.shortcut = Shortcut::kNone; }
  // All answers of a batch, or the one to a query over TCP, were given to the kernel, and their buffers are as they were.
  // `begin`: when it was taken.
  void onBatchDone(std::span<const Job> jobs, const BatchCounts& counts, BootClock::time_point begin) const {
    if (samples_ != nullptr || !meters_.empty()) noteBatch(jobs, counts, begin);
  }
  // For a handler that resolves `query` for a client, who has asked something else: what the client would get for it,
  // `acl` included, but for rates, logs and counts. Of the block `asking`, the handler's own, those before the one at `end`
  // are asked; kNext: it is not theirs, and no other block's; nextOfExisting() and nextOfAbove(): but it exists.
  // REQUIRES: class IN; inside a ReadSection.
  QueryOutcome answerInner(const Chain& asking, size_t end, const dns::Query& query, const Request& request) const;
  // Of the response that stands in the query's buffer: NXDOMAIN of a name that exists, since names of ours, a server
  // block's zone, or all reverse names, are below it, becomes NODATA (RFC 8020 §2).
  static void correctDenial(const dns::Query& query, const Request& request) {
    if (dns::HeaderView(query.message).rcode() != dns::Rcode::kNxDomain) [[likely]]
      return;
    if (request.name_exists || isReverseTree(query) || (request.router != nullptr && request.router->isAboveZone(query)))
      dns::denyDataOnly(query.message);
  }
  bool hasOneBlock() const { return routes_.size() == 1; }
  // Counts late answers; may be null.
  QuerySamples* samples() const { return samples_.get(); }

  // Whether an answer is still to come, which would be lost with the chains. Their loop's thread.
  bool isBusy() const;

 private:
  struct Route {
    dns::Name name;
    std::shared_ptr<const Chain> chain;
    std::shared_ptr<QueryMeter> meter;
    Shortcut shortcut;
  };

  void beginOther(Job& job) const;
  void beginDs(Job& job, const Route& found) const;
  const Route* route(const dns::Query& query) const {
    for (const Route& route : routes_) {
      if (route.name.isRoot() || dns::isNameWithin(query.name(), route.name)) return &route;
    }
    return nullptr;
  }
  const Route& routeOfDs(const dns::Query& query, const Route& found) const;
  static bool isReverseTree(const dns::Query& query);
  bool isAboveZone(const dns::Query& query) const;
  QueryOutcome serve(Job& job, Request& request) const;
  QueryOutcome serveMetered(Job& job, QueryMeter& meter, Request& request) const;
  static QueryOutcome serveDirectly(Job& job, Request& request);
  static QueryOutcome serveHandlers(Job& job, Request& request);
  static QueryOutcome serveUncounted(Job& job, Request& request);
  static void count(std::span<const Job> jobs, const SocketAddress& local);
  void noteBatch(std::span<const Job> jobs, const BatchCounts& counts, BootClock::time_point begin) const;
  QueryOutcome serveUnrouted(Job& job, const Request& request) const;
  QueryOutcome refuseUnrouted(Job& job, const Request& request) const;
  const Chain::Parts* partsForUnrouted(const dns::Query& query) const;
  QueryOutcome serveBlock(Job& job, const Request& request) const;
  Gate::AclVerdict judgeUnrouted(const Job& job, const Request& request) const;

  std::vector<Route> routes_;  // longest name first
  std::shared_ptr<QueryMeter> unrouted_;
  std::vector<QueryMeter*> meters_;  // of routes_, and unrouted_
  std::shared_ptr<QuerySamples> samples_;
  bool has_gate_ = false;  // some block
  HashSeed seed_;
};

// The zones served at one address over UDP and TCP, with the chains and meters of the first worker.
struct ListenerRoutes {
  SocketAddress address;  // an unspecified IP: all of its family
  std::vector<Router::Zone> zones;
};

}  // namespace idetcd::resolve
