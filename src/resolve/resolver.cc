#include "resolve/resolver.h"

#include <algorithm>

#include "base/clock.h"
#include "resolve/any.h"
#include "resolve/special_names.h"
#include "resolve/whoami.h"

namespace idetcd::resolve {

using dns::ParseOutcome;
using dns::Query;
using dns::Rcode;

namespace {

Outcome refuse(const Query& query, size_t limit, uint16_t flags) {
  return Outcome::answer(dns::ResponseBuilder(query, limit).finish(Rcode::kRefused, flags));
}

// By how much is withheld.
int strictness(Acl::Action action) {
  switch (action) {
    case Acl::Action::kAllow:
      return 0;
    case Acl::Action::kFilter:
      return 1;
    case Acl::Action::kBlock:
      return 2;
    case Acl::Action::kDrop:
      return 3;
  }
  return 3;
}

}  // namespace

Resolver::Resolver(std::vector<Zone> zones, HashSeed seed) : seed_(seed) {
  std::stable_sort(zones.begin(), zones.end(),
                   [](const Zone& a, const Zone& b) { return a.name.size() > b.name.size(); });
  for (Zone& zone : zones) {
    const ServerBlock& block = *zone.block;
    const bool direct = block.cluster && !block.log && !block.any && !block.acl;
    has_acl_ |= block.acl != nullptr;
    routes_.push_back({.name = zone.name, .block = std::move(zone.block), .direct = direct});
  }
}

bool Resolver::isBusy() const {
  return std::any_of(routes_.begin(), routes_.end(),
                     [](const Route& route) { return route.block->recursion && route.block->recursion->isBusy(); });
}

Outcome Resolver::answerOther(Job& job, const Request& request) const {
  if (job.block == nullptr) return answerUnrouted(job, request);
  return job.block->log ? answerLogged(job, request) : answerQuery(job, request);
}

// What is no query, or not for us.
Outcome Resolver::answerUnrouted(const Job& job, const Request& request) const {
  if (job.outcome == ParseOutcome::kDrop) return Outcome::drop();
  const size_t limit = request.response_limit;
  if (has_acl_) {
    const Acl::Action action = judgeUnrouted(job, request);
    // Only who asks something can be told that there is none of it: to others (NOTIFY, UPDATE) it would mean success.
    const bool asks = job.query.opcode() == dns::Opcode::kQuery;
    if (action != Acl::Action::kFilter || asks) {
      if (const Outcome outcome = Acl::answer(action, job.query, limit, 0); !outcome.isNext()) return outcome;
    }
  }
  if (job.outcome == ParseOutcome::kError) return Outcome::answer(dns::writeErrorResponse(job.query, limit));
  return refuse(job.query, limit, 0);
}

Acl::Action Resolver::judgeUnrouted(const Job& job, const Request& request) const {
  const auto source = IpAddress::fromSockaddr(request.source);
  if (job.query.qname_size > 0) {  // it can be read, though it cannot be answered
    if (const Route* found = route(job.query); found != nullptr) {
      const auto& acl = found->block->acl;
      return acl ? acl->check(source, job.query.name(), job.query.qtype) : Acl::Action::kAllow;
    }
  }
  Acl::Action strictest = Acl::Action::kAllow;
  const bool has_root = !routes_.empty() && routes_.back().name.isRoot();
  for (const Route& route : routes_) {
    if (!route.block->acl || (has_root && !route.name.isRoot())) continue;
    const Acl::Action action = route.block->acl->check(source, route.name.wire(), std::nullopt);
    if (strictness(action) > strictness(strictest)) strictest = action;
  }
  return strictest;
}

Outcome Resolver::answerLogged(Job& job, const Request& request) {
  const auto start = BootClock::now();
  const Outcome outcome = answerQuery(job, request);
  if (outcome.kind == Outcome::Kind::kAnswer) {
    job.block->log->write(job.query, request, {job.query.message, outcome.size}, BootClock::now() - start);
  }
  return outcome;
}

// The handlers, in the order in which CoreDNS runs them but for one thing: the cluster's names come before everything
// that could hide them.
Outcome Resolver::answerQuery(Job& job, const Request& request) {
  Query& query = job.query;
  const ServerBlock& block = *job.block;
  const size_t limit = request.response_limit;
  const uint16_t flags = block.recursion ? dns::kFlagRa : 0;
  if (block.acl) {  // a client that may not ask does not learn which node this is either
    const auto action = block.acl->check(IpAddress::fromSockaddr(request.source), query.name(), query.qtype);
    if (const Outcome outcome = Acl::answer(action, query, limit, flags); !outcome.isNext()) return outcome;
  }
  if (query.wants_nsid && block.identity) query.nsid = block.identity->text();
  if (query.qclass != dns::code(dns::RrClass::kIn)) [[unlikely]]
    return answerOtherClass(block, query, limit, flags);
  if (block.any) {
    if (const Outcome outcome = answerAny(query, limit, flags); !outcome.isNext()) return outcome;
  }
  if (block.cluster) [[likely]] {
    const Outcome outcome = block.cluster->answer(query, limit, flags, request.now);
    if (!outcome.isNext()) {
      if (block.errors) reportFailure(block, query);
      return outcome;
    }
  }
  return answerBehindCluster(block, query, request, flags);
}

Outcome Resolver::answerOtherClass(const ServerBlock& block, const Query& query, size_t limit, uint16_t flags) {
  const bool chaos = query.qclass == dns::code(dns::RrClass::kCh) && block.identity;
  return chaos ? block.identity->answerChaos(query, limit, flags) : refuse(query, limit, flags);
}

Outcome Resolver::answerBehindCluster(const ServerBlock& block, const Query& query, const Request& request,
                                      uint16_t flags) {
  const size_t limit = request.response_limit;
  if (block.identity) {
    if (const Outcome outcome = block.identity->answerReverse(query, limit, flags); !outcome.isNext()) return outcome;
  }
  if (block.hosts) {
    const uint32_t rotation = block.loadbalance ? dns::load16(query.message) : 0;  // the ID is random enough
    if (const Outcome outcome = block.hosts->answer(query, limit, flags, rotation); !outcome.isNext()) return outcome;
  }
  if (block.recursion) {
    const bool wanted = (query.flags & dns::kFlagRd) != 0;
    if (!wanted) [[unlikely]] {
      if (const Outcome outcome = answerWithoutRecursion(block, query, request); !outcome.isNext()) return outcome;
    } else {
      if (const Outcome outcome = block.recursion->answerAtHand(query, request); !outcome.isNext()) return outcome;
      if (const Outcome outcome = answerFromWorld(block, query, request); !outcome.isNext()) return outcome;
    }
  }
  if (block.whoami) return answerWhoami(query, request, flags);
  return refuse(query, limit, flags);
}

Outcome Resolver::answerFromWorld(const ServerBlock& block, const Query& query, const Request& request) {
  if (block.recursion->serves(query)) [[likely]] {
    if (block.loop) block.loop->see(query, request);
    return block.recursion->answer(query, request);
  }
  return answerSpecialName(query, request.response_limit);
}

// A client that wants no recursion (RD=0) gets what we know for ourselves, and that is not what others have asked for:
// the cache would tell it which names these were. Nothing is forwarded for it either.
Outcome Resolver::answerWithoutRecursion(const ServerBlock& block, const Query& query, const Request& request) {
  if (!block.recursion->serves(query)) return answerSpecialName(query, request.response_limit);
  dns::ResponseBuilder response(query, request.response_limit);
  response.setEde(dns::EdeCode::kNotAuthoritative, "no recursion desired");  // RFC 8914 §4.21
  return Outcome::answer(response.finish(Rcode::kRefused, dns::kFlagRa));
}

// REQUIRES: the response stands in the query's buffer; `errors` is configured.
void Resolver::reportFailure(const ServerBlock& block, const Query& query) {
  const auto rcode = static_cast<Rcode>(dns::load16(query.message + 2) & dns::kRcodeMask);
  if (rcode == Rcode::kServFail) block.errors->write(query, rcode, "etcd has not been read yet");
}

}  // namespace idetcd::resolve
