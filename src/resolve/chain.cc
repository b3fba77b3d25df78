#include "resolve/chain.h"

#include "base/clock.h"
#include "dns/message_reader.h"
#include "dns/response.h"
#include "resolve/router.h"

namespace idetcd::resolve {

// The cluster's names where something comes before them.
class Chain::ClusterHandler final : public Handler {
 public:
  ClusterHandler(const Chain& chain, std::shared_ptr<const ClusterZone> cluster)
      : chain_(chain), cluster_(std::move(cluster)) {}
  const dns::Name& zone() const { return cluster_->store().zone(); }
  QueryOutcome answer(const dns::Query& query, const Request& request, uint16_t flags) override {
    const QueryOutcome outcome = cluster_->answer(query, request.response_limit, flags, request.now);
    if (!outcome.isNext() && chain_.parts.errors && !request.own_only) chain_.reportFailure(query);
    return outcome;
  }
  QueryOutcome answerNoData(const dns::Query& query, const Request& request, uint16_t flags) override {
    return cluster_->answerNoData(query, request.response_limit, flags);
  }
  bool hasZoneAbove(std::span<const uint8_t> name) const override {
    return dns::isNameWithin(dns::parentOf(name), zone());
  }

 private:
  const Chain& chain_;
  const std::shared_ptr<const ClusterZone> cluster_;
};

void Chain::add(std::unique_ptr<Handler> handler) {
  if (handler->prefetches()) prefetching_.push_back(handler.get());
  handlers_.push_back({.handler = std::move(handler), .directive = adding_});
}

void Chain::addForOtherClasses(std::unique_ptr<Handler> handler) {
  for_other_classes_.insert(for_other_classes_.begin(), Link{.handler = std::move(handler), .directive = adding_});
}

void Chain::addCluster(std::shared_ptr<const ClusterZone> cluster) {
  const auto encloses = [&](const Link& link) {
    const auto* other = dynamic_cast<const ClusterHandler*>(link.handler.get());
    return other != nullptr && cluster->store().zone().isWithin(other->zone());
  };
  const auto place = std::ranges::find_if(handlers_, encloses);
  const auto index = static_cast<size_t>(place - handlers_.begin());
  if (++clusters_ == 1 || index < behind_cluster_) {
    cluster_ = cluster;
    cluster_directive_ = adding_;
    behind_cluster_ = index + 1;
  }
  handlers_.insert(place, {.handler = std::make_unique<ClusterHandler>(*this, std::move(cluster)), .directive = adding_});
}

void Chain::addForTransfers(std::unique_ptr<Handler> handler) {
  for_transfers_.push_back({.handler = std::move(handler), .directive = adding_});
}

void Chain::addForNotifies(std::unique_ptr<Handler> handler) {
  for_notifies_.push_back({.handler = std::move(handler), .directive = adding_});
}

QueryOutcome Chain::askBehindCluster(QueryOutcome next, const dns::Query& query, Request& request,
                                     QueryMeter* meter) const {
  request.meter = meter;
  const QueryOutcome outcome = next.isNextOfExisting()
                                   ? runBehind(next, behind_cluster_ - 1, handlers_.size(), query, request, flags())
                                   : runHandlers(behind_cluster_, handlers_.size(), query, request, flags());
  request.meter = nullptr;
  return outcome.isNext() ? refuse(query, request.response_limit, flags()) : outcome;
}

QueryOutcome Chain::answer(dns::Query& query, const Request& request) const {
  if (!parts.log) return runLimited(query, request);
  const auto start = BootClock::now();
  const QueryOutcome outcome = runLimited(query, request);
  if (outcome.kind == QueryOutcome::Kind::kAnswer) {
    parts.log->onAnswered(query, request, {query.message, outcome.size}, BootClock::now() - start);
  }
  return outcome;
}

QueryOutcome Chain::runLimited(dns::Query& query, const Request& request) const {
  return parts.limiter ? runWithLimiter(query, request) : runGated(query, request);
}

// Apart, so that the other path pays nothing for it.
[[gnu::noinline]] QueryOutcome Chain::runWithLimiter(dns::Query& query, const Request& request) const {
  if (!parts.limiter->mayAsk(query, request)) return QueryOutcome::drop(DropReason::kRrl);
  uint32_t wildcard = 0;
  Request noting = request;
  noting.wildcard = &wildcard;
  const QueryOutcome outcome = runGated(query, noting);
  return limitOutcome(parts.limiter.get(), query, request, outcome, wildcard);
}

// A client that may not ask does not learn which node this is either: the gate comes before the NSID.
QueryOutcome Chain::runGated(dns::Query& query, const Request& request) const {
  if (parts.gate) {
    if (const QueryOutcome outcome = judge(query, request); !outcome.isNext()) return outcome;
  }
  const bool has_to_show_cookie = parts.requires_cookie && query.opcode() != dns::Opcode::kNotify;
  if (has_to_show_cookie && request.transport == Transport::kUdp && !query.hasGoodCookie()) [[unlikely]]
    return askForCookie(query, request);
  if (query.asksFor(dns::kAsksNsid) && parts.nsid) query.nsid = parts.nsid->text();
  if (parts.signatures) [[unlikely]]
    return runSigned(query, request);
  return runAdmitted(query, request);
}

// A client learns what a query without a signature, or with a bad one, comes to if it may ask at all.
QueryOutcome Chain::runSigned(const dns::Query& query, const Request& request) const {
  if (query.tsig_offset != 0)
    return answerSigned(parts.signatures, query, request, flags(),
                        [&](const Request& signed_request) { return runAdmitted(query, signed_request); });
  if (parts.signatures->isRequiredOf(query)) return refuse(query, request.response_limit, flags());
  return runAdmitted(query, request);
}

QueryOutcome Chain::runAdmitted(const dns::Query& query, const Request& request) const {
  if (query.opcode() == dns::Opcode::kNotify) [[unlikely]]
    return runSeparate(for_notifies_, query, request);
  const bool is_in = query.qclass == dns::code(dns::RrClass::kIn);
  if (query.qtype == dns::code(dns::RrType::kAxfr) || query.qtype == dns::code(dns::RrType::kIxfr)) [[unlikely]]
    return is_in ? runSeparate(for_transfers_, query, request) : refuse(query, request.response_limit, flags());
  if (!is_in) [[unlikely]]
    return runSeparate(for_other_classes_, query, request);
  return runFrom(0, query, request, flags());
}

QueryOutcome Chain::judge(const dns::Query& query, const Request& request) const {
  auto verdict = parts.gate->judge(IpAddress::fromSockaddr(request.source), query.name(), query.qtype);
  // NOERROR would mean to a primary that its NOTIFY was taken.
  if (verdict == Gate::AclVerdict::kFilter && query.opcode() == dns::Opcode::kNotify) [[unlikely]]
    verdict = Gate::AclVerdict::kBlock;
  if (request.meter != nullptr) request.meter->verdicts[static_cast<size_t>(verdict)].add();
  QueryOutcome outcome = Gate::answer(verdict, query, request.response_limit, flags());
  outcome.answered_by = parts.gate_directive;
  return outcome;
}

QueryOutcome Chain::runFrom(size_t first, const dns::Query& query, const Request& request, uint16_t flags) const {
  const QueryOutcome outcome = runHandlers(first, handlers_.size(), query, request, flags);
  return outcome.isNext() ? refuse(query, request.response_limit, flags) : outcome;
}

QueryOutcome Chain::answerInner(const dns::Query& query, const Request& request, size_t end) const {
  if (parts.gate) {
    if (const QueryOutcome outcome = judge(query, request); !outcome.isNext()) return outcome;
  }
  const SignatureRules* const rules = parts.signatures.get();
  if (rules != nullptr && request.signed_by != rules && rules->isRequiredOf(query))
    return refuse(query, request.response_limit, flags());
  return runHandlers(0, end, query, request, flags());
}

// kNext: none of them answers.
QueryOutcome Chain::runHandlers(size_t first, size_t end, const dns::Query& query, const Request& request,
                                uint16_t flags) const {
  for (size_t i = first; i < end; ++i) {
    QueryOutcome outcome = handlers_[i].handler->answer(query, request, flags);
    if (outcome.isNextOfExisting()) [[unlikely]]
      return runBehind(outcome, i, end, query, request, flags);
    if (outcome.isNext()) continue;
    if (outcome.answered_by == DirectiveNames::kServer) outcome.answered_by = handlers_[i].directive;
    if (outcome.kind == QueryOutcome::Kind::kAnswer) Router::correctDenial(query, request);
    return outcome;
  }
  return QueryOutcome::next();
}

// Asks those behind the handler at `index`, which has said `next`: the name, or some below it, exists.
QueryOutcome Chain::runBehind(QueryOutcome next, size_t index, size_t end, const dns::Query& query,
                              const Request& request, uint16_t flags) const {
  Request behind = request;
  behind.name_exists = true;
  QueryOutcome outcome = runHandlers(index + 1, end, query, behind, flags);
  if (!outcome.isNext()) return outcome;
  if (next.isNextOfAbove() || end < handlers_.size()) return next;  // who asks goes on to the others
  outcome = handlers_[index].handler->answerNoData(query, request, flags);
  outcome.answered_by = handlers_[index].directive;
  return outcome;
}

QueryOutcome Chain::runSeparate(const std::vector<Link>& links, const dns::Query& query, const Request& request) const {
  for (const Link& link : links) {
    QueryOutcome outcome = link.handler->answer(query, request, flags());
    outcome.answered_by = link.directive;
    if (!outcome.isNext()) return outcome;
  }
  return refuse(query, request.response_limit, flags());
}

bool Chain::hasZoneAbove(std::span<const uint8_t> name) const {
  return std::ranges::any_of(handlers_, [name](const Link& link) { return link.handler->hasZoneAbove(name); });
}

bool Chain::isBusy() const {
  return std::any_of(handlers_.begin(), handlers_.end(), [](const Link& link) { return link.handler->isBusy(); });
}

// BADCOOKIE with the right one (RFC 7873 §5.2.3); clients without cookies go to TCP, which proves their address too.
QueryOutcome Chain::askForCookie(const dns::Query& query, const Request& request) const {
  dns::ResponseBuilder response(query, request.response_limit);
  if (query.asksFor(dns::kAsksCookie)) return QueryOutcome::answer(response.finish(dns::Rcode::kBadCookie, flags()));
  response.truncate();
  return QueryOutcome::answer(response.finish(dns::Rcode::kNoError, flags()));
}

// REQUIRES: the response stands in the query's buffer; parts.errors is set.
void Chain::reportFailure(const dns::Query& query) const {
  assert(parts.errors);
  const auto rcode = dns::HeaderView(query.message).rcode();
  if (rcode == dns::Rcode::kServFail) parts.errors->onFailed(query, rcode, "etcd has not been read yet");
}

QueryOutcome limitOutcome(RateLimiter* limiter, const dns::Query& query, const Request& request, QueryOutcome outcome,
                          uint32_t wildcard) {
  if (limiter == nullptr || outcome.kind != QueryOutcome::Kind::kAnswer) return outcome;
  const size_t size = limiter->limit(query, request, outcome.size, wildcard);
  if (size == 0) return QueryOutcome::drop(DropReason::kRrl);
  outcome.size = size;
  return outcome;
}

QueryOutcome refuse(const dns::Query& query, size_t limit, uint16_t flags) {
  return QueryOutcome::answer(dns::ResponseBuilder(query, limit).finish(dns::Rcode::kRefused, flags));
}

}  // namespace idetcd::resolve
