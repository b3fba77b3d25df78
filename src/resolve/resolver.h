// From a query to its response: routes it to the server block of the longest zone and runs that block's handlers in
// their fixed order. First of all comes `acl`, even for what cannot be read: a question that can is judged by the block
// of its zone; what has none is judged by the block for the root, as a question for the root of no particular type, and
// where no block is for the root, by all blocks of this listener, each asked for its own zone, the strictest one of
// which decides. Immutable once built, shared by every loop; any loop thread, inside a ReadSection; no allocation
// unless a `log` or an error asks for a line.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolve/acl.h"
#include "resolve/cluster_zone.h"
#include "resolve/error_log.h"
#include "resolve/hosts.h"
#include "resolve/identity.h"
#include "resolve/loop_probe.h"
#include "resolve/query_log.h"
#include "resolve/recursion.h"
#include "resolve/request.h"

namespace idetcd::resolve {

// The handlers of one server block on one loop; null or false: not configured. What is shared between loops is
// immutable, or guards itself.
struct ServerBlock {
  std::shared_ptr<const QueryLog> log;
  std::shared_ptr<ErrorLog> errors;
  std::shared_ptr<const Acl> acl;
  std::shared_ptr<const ClusterZone> cluster;
  std::shared_ptr<const Identity> identity;
  std::unique_ptr<const Hosts> hosts;
  std::unique_ptr<Recursion> recursion;
  std::shared_ptr<const LoopProbe> loop;     // asks through the recursion of the first loop
  size_t bufsize = dns::kDefaultUdpPayload;  // of a UDP response, at most
  bool any = false;
  bool loadbalance = false;
  bool whoami = false;
};

// A query on its way through the three passes over a batch.
struct Job {
  dns::Query query;
  dns::ParseOutcome outcome = dns::ParseOutcome::kDrop;
  const ServerBlock* block = nullptr;  // null: no zone of this listener holds the name
  bool direct = false;                 // straight to the cluster's names: nothing comes before them
};

class Resolver {
 public:
  struct Zone {
    dns::Name name;
    std::shared_ptr<const ServerBlock> block;
  };

  // REQUIRES: no name twice.
  Resolver(std::vector<Zone> zones, HashSeed seed);

  // Pass 1: parses, routes, and begins to fetch what pass 2 reads. REQUIRES of `message`: as parseQuery().
  void begin(Job& job, uint8_t* message, size_t size) const {
    job.block = nullptr;
    job.direct = false;
    job.outcome = dns::parseQuery(message, size, seed_, job.query);
    if (job.outcome != dns::ParseOutcome::kQuery) return;
    const Route* found = route(job.query);
    if (found == nullptr) return;
    const ServerBlock& block = *found->block;
    job.block = &block;
    const bool ordinary = job.query.qclass == dns::code(dns::RrClass::kIn) && !job.query.wants_nsid;
    job.direct = ordinary && found->direct;
    if (block.cluster) block.cluster->table().prefetchBucket(job.query.hash);
    if (block.hosts) block.hosts->prefetchBucket(job.query.hash);
    if (block.recursion) block.recursion->prefetchSlot(job.query);
  }
  // Pass 2: begins to fetch what pass 3 reads.
  void prefetch(const Job& job) const {
    if (job.block == nullptr) return;
    if (job.block->cluster) job.block->cluster->table().prefetchEntry(job.query.hash);
    if (job.block->hosts) job.block->hosts->prefetchEntry(job.query.hash);
    if (job.block->recursion) job.block->recursion->prefetchEntry(job.query);
  }
  // What a UDP client takes, but no more than `bufsize` lets through.
  static size_t udpResponseLimit(const Job& job) {
    if (!job.query.has_edns) return dns::kMinUdpPayload;
    return std::min<size_t>(job.query.udp_payload, job.block != nullptr ? job.block->bufsize : dns::kDefaultUdpPayload);
  }
  // Pass 3: writes the response over the query, unless it is dropped or pending. Never kNext.
  Outcome answer(Job& job, const Request& request) const {
    return job.direct ? answerDirectly(job, request) : answerOther(job, request);
  }

  // Whether an answer is still to come, which would be lost with the blocks. The blocks' loop thread.
  bool isBusy() const;

 private:
  struct Route {
    dns::Name name;
    std::shared_ptr<const ServerBlock> block;
    bool direct;
  };

  const Route* route(const dns::Query& query) const {
    for (const Route& route : routes_) {
      if (route.name.isRoot() || dns::isNameWithin(query.name(), route.name)) return &route;
    }
    return nullptr;
  }
  [[gnu::always_inline]] static Outcome answerDirectly(const Job& job, const Request& request) {
    const ServerBlock& block = *job.block;
    const uint16_t flags = block.recursion ? dns::kFlagRa : 0;
    const Outcome outcome = block.cluster->answer(job.query, request.response_limit, flags, request.now);
    if (outcome.isNext()) return answerBehindCluster(block, job.query, request, flags);
    if (block.errors) reportFailure(block, job.query);
    return outcome;
  }
  Outcome answerOther(Job& job, const Request& request) const;
  Outcome answerUnrouted(const Job& job, const Request& request) const;
  Acl::Action judgeUnrouted(const Job& job, const Request& request) const;
  static Outcome answerLogged(Job& job, const Request& request);
  static Outcome answerQuery(Job& job, const Request& request);
  static Outcome answerOtherClass(const ServerBlock& block, const dns::Query& query, size_t limit, uint16_t flags);
  static Outcome answerBehindCluster(const ServerBlock& block, const dns::Query& query, const Request& request,
                                     uint16_t flags);
  static Outcome answerFromWorld(const ServerBlock& block, const dns::Query& query, const Request& request);
  static Outcome answerWithoutRecursion(const ServerBlock& block, const dns::Query& query, const Request& request);
  static void reportFailure(const ServerBlock& block, const dns::Query& query);

  std::vector<Route> routes_;  // longest name first
  bool has_acl_ = false;       // some block
  HashSeed seed_;
};

}  // namespace idetcd::resolve
