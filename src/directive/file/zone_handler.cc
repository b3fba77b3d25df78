#include "directive/file/zone_handler.h"

#include "directive/values/values.h"
#include "zones/zone_lookup.h"
#include "zones/zone_response.h"

namespace idetcd::directive {

using resolve::QueryOutcome;

ZoneHandler::ZoneHandler(std::shared_ptr<const ZoneSet> set, bool rotates, std::vector<IpNetwork> preferred,
                         std::unique_ptr<resolver::AliasCompletion> aliases)
    : set_(std::move(set)),
      rotates_(rotates),
      preferred_(std::move(preferred)),
      generation_(set_->generation()),
      aliases_(std::move(aliases)) {
  table_ = set_->table();
}

void ZoneHandler::addTo(resolve::Chain& chain, const resolve::LoopContext& context, std::shared_ptr<const ZoneSet> set,
                        std::string_view directive) {
  const Values& values = valuesOf(context.block);
  auto aliases = std::make_unique<resolver::AliasCompletion>(
      chain, context.loop, context.process.epochs,
      resolver::AliasCompletion::Options{.hash_seed = context.process.hash_seed,
                                         .directive = context.process.names.idOf(directive),
                                         .rotates = values.loadbalance,
                                         .preferred = values.preferred});
  chain.add(std::make_unique<ZoneHandler>(std::move(set), values.loadbalance, values.preferred, std::move(aliases)));
}

// The generation is read before the table, so a table that is replaced in between is only fetched once more.
const ZoneTable& ZoneHandler::newestTable() {
  const uint64_t generation = set_->generation();
  if (generation != generation_) [[unlikely]] {
    generation_ = generation;
    table_ = set_->table();
  }
  return *table_;
}

// The zone to look the name up in. The only one need not have it: that is found out only if it does not hold it.
const ServedZone* ZoneHandler::likelyZone(const dns::Query& query) const {
  const ServedZone* const only = table_->only();
  return only != nullptr ? only : table_->find(query.name());
}

void ZoneHandler::prefetchBucket(const dns::Query& query) {
  const ServedZone* const likely = likelyZone(query);
  if (likely != nullptr && likely->zone) likely->zone->table().prefetchBucket(query.hash);
}

void ZoneHandler::prefetchEntry(const dns::Query& query) {
  const ServedZone* const likely = likelyZone(query);
  if (likely != nullptr && likely->zone) likely->zone->table().prefetchEntry(query.hash);
}

QueryOutcome ZoneHandler::answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const ZoneTable& table = newestTable();
  const ServedZone* const likely = likelyZone(query);
  if (likely != nullptr && likely->zone) [[likely]] {
    const size_t size = zones::answerHit(*likely->zone, query, request.response_limit, flags);
    if (size > 0) [[likely]]
      return ordered(query, size);
  }
  if (likely != nullptr && dns::isNameWithin(query.name(), likely->origin))
    return answerFrom(*likely, query, request, flags);
  return table.isAbove(query.hash) ? QueryOutcome::nextOfAbove() : QueryOutcome::next();
}

QueryOutcome ZoneHandler::answerFrom(const ServedZone& served, const dns::Query& query, const resolve::Request& request,
                                     uint16_t flags) {
  if (!served.zone) {
    dns::ResponseBuilder response(query, request.response_limit);
    response.setEde(dns::EdeCode::kNotReady);
    return QueryOutcome::answer(response.finish(dns::Rcode::kServFail, flags));
  }
  const bool passes_missing = std::ranges::any_of(
      served.fallthrough, [&](const dns::Name& zone) { return dns::isNameWithin(query.name(), zone); });
  const zones::ZoneAnswer answer = zones::lookUp(*served.zone, query, request.response_limit, flags, passes_missing);
  if (answer.kind == zones::ZoneAnswer::Kind::kParentSide) return answerParentSide(query, request, flags);
  const bool is_above = table_->only() == nullptr && table_->isAbove(query.hash);
  if (answer.kind == zones::ZoneAnswer::Kind::kNoName) return is_above ? QueryOutcome::nextOfAbove() : QueryOutcome::next();
  if (is_above) dns::denyDataOnly(query.message);
  if (request.wildcard != nullptr) *request.wildcard = answer.wildcard;
  if (answer.kind == zones::ZoneAnswer::Kind::kAlias && aliases_)
    return aliases_->complete(query, request, answer.size, answer.wildcard);
  return ordered(query, answer.size);
}

QueryOutcome ZoneHandler::ordered(const dns::Query& query, size_t size) const {
  if (rotates_ || !preferred_.empty()) orderAddresses(query, size);
  return QueryOutcome::answer(size);
}

QueryOutcome ZoneHandler::answerParentSide(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const auto name = query.name();
  const ServedZone* const parent = name.size() > 1 ? table_->find(dns::parentOf(name)) : nullptr;
  return parent != nullptr ? answerFrom(*parent, query, request, flags) : QueryOutcome::nextOfExisting();
}

QueryOutcome ZoneHandler::answerNoData(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const ServedZone* const served = newestTable().find(query.name());
  if (served == nullptr || !served->zone) return QueryOutcome::next();
  return QueryOutcome::answer(zones::answerApexNoData(*served->zone, query, request.response_limit, flags));
}

bool ZoneHandler::hasZoneAbove(std::span<const uint8_t> name) const {
  return set_->table()->find(dns::parentOf(name)) != nullptr;
}

// The addresses of the name itself.
void ZoneHandler::orderAddresses(const dns::Query& query, size_t size) const {
  dns::AddressOrder order{.preferred = preferred_};
  if (rotates_) order.rotation = dns::load16(query.message);  // the ID is random enough
  zones::orderAddresses(query, size, order);
}

}  // namespace idetcd::directive
