#include "resolve/cluster_zone.h"

namespace idetcd::resolve {

using dns::EdeCode;
using dns::Query;
using dns::Rcode;
using dns::ResponseBuilder;
using dns::RrType;
using records::Entry;

namespace {

// Types of the apex that do not depend on etcd.
bool isApexType(uint16_t qtype) {
  return qtype == dns::code(RrType::kSoa) || qtype == dns::code(RrType::kNs) || qtype == dns::code(RrType::kAny);
}

}  // namespace

// All but the fast path.
QueryOutcome ClusterZone::find(const Query& query, const Entry* entry, size_t limit, uint16_t flags,
                               Freshness freshness) const {
  const bool held = entry != nullptr && entry->isHeld();
  if (!held && !isInZone(query)) return QueryOutcome::nextOfAbove();
  if (!held && isSource(query)) return QueryOutcome::next();
  return entry != nullptr ? writeHit(query, *entry, limit, flags, freshness)
                          : writeMiss(query, limit, flags, freshness);
}

QueryOutcome ClusterZone::writeHit(const Query& query, const Entry& entry, size_t limit, uint16_t flags,
                                   Freshness freshness) const {
  ResponseBuilder response(query, limit);
  if (isOld(freshness)) response.setEde(EdeCode::kStaleAnswer);
  // RFC 8482 §4.1: of a name with several RRsets, ANY is answered with one.
  const bool any = query.qtype == dns::code(RrType::kAny);
  const bool found = entry.visitRrsets([&](const Entry::Rrset& rrset) {
    if (rrset.type != query.qtype && !any) return false;
    response.addAnswer(rrset.wire, rrset.count);
    return true;
  });
  if (found) return QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
  if (isParents(query)) return QueryOutcome::nextOfExisting();
  // A non-terminal may turn out to hold records once the snapshot is complete.
  if (!entry.isHeld() && isIncomplete(freshness)) return writeNotReady(query, limit, flags);
  return writeNoData(query, response, flags);
}

QueryOutcome ClusterZone::writeMiss(const Query& query, size_t limit, uint16_t flags, Freshness freshness) const {
  if (!isInZone(query)) return QueryOutcome::next();
  ResponseBuilder response(query, limit);
  const bool incomplete = isIncomplete(freshness);
  const bool apex = query.qname_size == store_.zone().size();
  if (isParents(query)) return QueryOutcome::nextOfExisting();
  if (apex && (!incomplete || isApexType(query.qtype))) return writeApex(query, response, flags);
  if (incomplete) return writeNotReady(query, limit, flags);
  if (fallsThrough(query)) return QueryOutcome::next();
  if (isOld(freshness)) response.setEde(EdeCode::kStaleNxdomainAnswer);
  addSoa(query, response, true);
  return QueryOutcome::answer(response.finish(Rcode::kNxDomain, flags | dns::kFlagAa));
}

QueryOutcome ClusterZone::writeNotReady(const Query& query, size_t limit, uint16_t flags) const {
  ResponseBuilder response(query, limit);
  response.setEde(EdeCode::kNotReady);
  return QueryOutcome::answer(response.finish(Rcode::kServFail, flags));
}

// `response` has no record yet.
QueryOutcome ClusterZone::writeNoData(const Query& query, ResponseBuilder& response, uint16_t flags) const {
  const bool in_zone = isInZone(query);
  if (in_zone && query.qname_size == store_.zone().size()) return writeApex(query, response, flags);
  addSoa(query, response, in_zone);
  return QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
}

QueryOutcome ClusterZone::answerNoData(const Query& query, size_t limit, uint16_t flags) const {
  ResponseBuilder response(query, limit);
  addSoa(query, response, isInZone(query));
  return QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
}

QueryOutcome ClusterZone::writeApex(const Query& query, ResponseBuilder& response, uint16_t flags) const {
  if (query.qtype == dns::code(RrType::kSoa) || query.qtype == dns::code(RrType::kAny)) {
    const auto soa = store_.apex().soa(dns::kHeaderSize, store_.serial());
    response.addAnswer(soa.span(), 1);
  } else if (query.qtype == dns::code(RrType::kNs)) {
    const size_t target = response.position() + records::ZoneApex::kNsTarget;
    response.addAnswer(store_.apex().ns(), 1);
    addGlue(response, target);
  } else {
    addSoa(query, response, true);
  }
  return QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
}

// The addresses of the name server, with the NS record's target as their owner.
void ClusterZone::addGlue(ResponseBuilder& response, size_t target) const {
  const auto name = store_.apex().nameServer().wire();
  const Entry* server = store_.table().find(hashBytes(name.data(), name.size(), store_.table().seed()), name);
  if (server == nullptr) return;
  server->visitRrsets([&](const Entry::Rrset& rrset) {
    if (rrset.count != 1) return false;
    const size_t owner = response.position();
    if (response.addAdditional(rrset.wire, 1)) dns::store16(response.at(owner), dns::pointerTo(target));
    return false;
  });
}

// Of the zone; or, for a name outside that etcd happens to hold, of the name itself, which is then its own apex.
void ClusterZone::addSoa(const Query& query, ResponseBuilder& response, bool in_zone) const {
  const size_t below = in_zone ? query.qname_size - store_.zone().size() : 0;
  const auto soa = store_.apex().soa(dns::kHeaderSize + below, store_.serial());
  response.addAuthority(soa.span(), 1);
}

bool ClusterZone::isInZone(const Query& query) const {
  return !store_.zone().isRoot() && dns::isNameWithin(query.name(), store_.zone());
}

// DS of an apex: of the zone's, or of a name outside of it. REQUIRES: it is in the zone, or held.
bool ClusterZone::isParents(const Query& query) const {
  return query.qtype == dns::code(RrType::kDs) && (query.qname_size == store_.zone().size() || !isInZone(query));
}

// The apex keeps its SOA and NS.
bool ClusterZone::isSource(const Query& query) const {
  const auto same = [&query](const dns::Name& name) { return std::ranges::equal(query.name(), name.wire()); };
  return std::any_of(options_.sources.begin(), options_.sources.end(), same) &&
         !(query.qname_size == store_.zone().size() && isApexType(query.qtype));
}

bool ClusterZone::fallsThrough(const Query& query) const {
  return std::any_of(options_.fallthrough.begin(), options_.fallthrough.end(),
                     [&query](const dns::Name& zone) { return dns::isNameWithin(query.name(), zone); });
}

}  // namespace idetcd::resolve
