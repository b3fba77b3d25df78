#include "resolve/resolver.h"

#include <algorithm>

#include "base/clock.h"
#include "resolve/whoami.h"

namespace idetcd::resolve {

using dns::ParseOutcome;
using dns::Query;
using dns::Rcode;

namespace {

Outcome refuse(const Query& query, size_t limit) {
  return Outcome::answer(dns::ResponseBuilder(query, limit).finish(Rcode::kRefused, 0));
}

}  // namespace

Resolver::Resolver(std::vector<Zone> zones, HashSeed seed) : zones_(std::move(zones)), seed_(seed) {
  std::stable_sort(zones_.begin(), zones_.end(),
                   [](const Zone& a, const Zone& b) { return a.name.size() > b.name.size(); });
}

const ServerBlock* Resolver::route(const Query& query) const {
  for (const Zone& zone : zones_) {
    if (zone.name.isRoot() || dns::isNameWithin(query.name(), zone.name)) return zone.block.get();
  }
  return nullptr;
}

void Resolver::begin(Job& job, uint8_t* message, size_t size) const {
  job.block = nullptr;
  job.outcome = dns::parseQuery(message, size, seed_, job.query);
  if (job.outcome != ParseOutcome::kQuery) return;
  job.block = route(job.query);
  if (job.block != nullptr && job.block->cluster) job.block->cluster->table().prefetchBucket(job.query.hash);
}

Outcome Resolver::answer(Job& job, const Request& request) const {
  if (job.outcome == ParseOutcome::kDrop) return Outcome::drop();
  if (job.outcome == ParseOutcome::kError) {
    return Outcome::answer(dns::writeErrorResponse(job.query, request.response_limit));
  }
  if (job.block == nullptr) return refuse(job.query, request.response_limit);
  if (!job.block->log) [[likely]]
    return answerQuery(job, request);
  const auto start = BootClock::now();
  const Outcome outcome = answerQuery(job, request);
  if (outcome.kind == Outcome::Kind::kAnswer) {
    job.block->log->write(job.query, request, {job.query.message, outcome.size}, BootClock::now() - start);
  }
  return outcome;
}

// The handlers, in the order in which CoreDNS runs them but for one thing: the cluster's names come before everything
// that could hide them.
Outcome Resolver::answerQuery(const Job& job, const Request& request) const {
  const Query& query = job.query;
  const ServerBlock& block = *job.block;
  if (query.qclass != dns::code(dns::RrClass::kIn)) return refuse(query, request.response_limit);
  if (block.cluster) {
    const Outcome outcome = block.cluster->answer(query, request.response_limit, 0);
    if (!outcome.isNext()) {
      reportFailure(block, query);
      return outcome;
    }
  }
  if (block.whoami) return answerWhoami(query, request, 0);
  return refuse(query, request.response_limit);
}

// REQUIRES: the response stands in the query's buffer.
void Resolver::reportFailure(const ServerBlock& block, const Query& query) {
  const auto rcode = static_cast<Rcode>(dns::load16(query.message + 2) & dns::kRcodeMask);
  if (rcode == Rcode::kServFail && block.errors) block.errors->write(query, rcode, "etcd has not been read yet");
}

}  // namespace idetcd::resolve
