#include "resolve/cluster_zone.h"

#include "records/member_data.h"

namespace idetcd::resolve {

using dns::EdeCode;
using dns::Query;
using dns::Rcode;
using dns::ResponseBuilder;
using dns::RrType;
using records::Entry;
using records::MemberGroup;
using records::MemberView;

namespace {

// Types of the apex that do not depend on etcd.
bool isApexType(uint16_t qtype) {
  return qtype == dns::code(RrType::kSoa) || qtype == dns::code(RrType::kNs) || qtype == dns::code(RrType::kAny);
}

// The addresses of a name that begins at `target` of the message. False: they do not fit.
bool addAddresses(ResponseBuilder& response, const Entry& entry, size_t target) {
  return !entry.visitRrsets([&](const Entry::Rrset& rrset) {
    if (rrset.count != 1 || rrset.type == dns::code(records::kMemberType)) return false;
    const size_t owner = response.position();
    if (!response.addAdditional(rrset.wire, 1)) return true;
    dns::store16(response.at(owner), dns::pointerTo(target));
    return false;
  });
}

// Calls add(entry), which says whether it had room, for each member, beginning at another one each time.
template <typename Add>
void addInTurn(const MemberGroup& group, ResponseBuilder& response, Add add) {
  const auto members = group.members();
  const size_t first = group.nextTurn();
  for (size_t i = 0; i < members.size(); ++i) {
    if (!add(*members[(first + i) % members.size()])) return response.cutHere();
  }
}

// Of this type, of all members. False: none has one.
bool addMemberAddresses(const MemberGroup& group, ResponseBuilder& response, RrType type) {
  if ((type == RrType::kA ? group.families().ipv4 : group.families().ipv6) == 0) return false;
  addInTurn(group, response, [&](const Entry& entry) {
    const Entry::Rrset rrset = entry.find(dns::code(type));
    if (rrset.count == 0) return true;
    if (rrset.wire.size() > response.room()) return false;
    response.addAnswer(rrset.wire, rrset.count);
    return true;
  });
  return true;
}

// The SRV records of a group of members (RFC 2782), in the answer, and the addresses of their targets.
class ServiceAnswer {
 public:
  // REQUIRES: the question is for `_NAME._tcp.ZONE` or `_NAME._udp.ZONE`.
  ServiceAnswer(const Query& query, ResponseBuilder& response, uint32_t ttl_seconds)
      : response_(response), ttl_seconds_(ttl_seconds) {
    const std::span<const uint8_t> owner = query.name();
    const size_t size = owner[0];
    name_ = {reinterpret_cast<const char*>(owner.data()) + 2, size - 1};
    const bool is_tcp = owner[size + 3] == 't';
    protocol_ = static_cast<uint8_t>(is_tcp ? records::Service::Protocol::kTcp : records::Service::Protocol::kUdp);
  }

  // What the member offers of it, each once: in two stores it may say so twice. False: it does not fit.
  bool add(const Entry& member) {
    std::array<uint32_t, 2 * records::kMaxServices> offered;
    size_t count = 0;
    bool fits = true;
    member.visitRecords([&](RrType type, uint32_t, records::Rdata rdata) {
      if (type != records::kMemberType) return;
      MemberView(rdata).visitServices([&](const MemberView::ServiceView& service) {
        const uint32_t offer = uint32_t{service.port} << 16 | service.weight;
        const auto known = std::span(offered).first(count);
        const bool is_asked = service.name == name_ && service.protocol == protocol_;
        if (!is_asked || count == offered.size() || std::ranges::find(known, offer) != known.end()) return;
        offered[count++] = offer;
        fits = fits && addRecord(member, service);
      });
    });
    return fits;
  }
  // As far as they fit.
  void addTargets() {
    for (const Target& target : std::span(targets_).first(count_)) {
      if (!addAddresses(response_, *target.member, target.offset)) return;
    }
  }

 private:
  static constexpr size_t kMostTargets = 64;
  struct Target {
    const Entry* member;
    size_t offset;  // of its name in the message, which SRV has in full
  };

  bool addRecord(const Entry& member, const MemberView::ServiceView& service) {
    std::array<uint8_t, dns::kRecordHeadSize + 6 + dns::kMaxNameLength> record;
    uint8_t* to =
        dns::putRecordHead(record.data(), dns::kQuestionPointer, RrType::kSrv, ttl_seconds_, 6 + member.name().size());
    to = dns::put16(dns::put16(dns::put16(to, 0), service.weight), service.port);
    to = dns::putBytes(to, member.name());
    const auto size = static_cast<size_t>(to - record.data());
    if (size > response_.room()) return false;
    response_.addAnswer({record.data(), size}, 1);
    const size_t offset = response_.position() - member.name().size();
    if (count_ < kMostTargets && offset < 0x4000) targets_[count_++] = {&member, offset};
    return true;
  }

  ResponseBuilder& response_;
  const uint32_t ttl_seconds_;
  std::string_view name_;
  uint8_t protocol_ = 0;
  std::array<Target, kMostTargets> targets_;
  size_t count_ = 0;
};

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
  if (const MemberGroup* group = MemberGroup::of(entry)) return writeGroup(query, *group, limit, flags, freshness);
  ResponseBuilder response(query, limit);
  if (isOld(freshness)) response.setEde(EdeCode::kStaleAnswer);
  // RFC 8482 §4.1: of a name with several RRsets, ANY is answered with one.
  const bool any = query.qtype == dns::code(RrType::kAny);
  const bool found = entry.visitRrsets([&](const Entry::Rrset& rrset) {
    if (rrset.type == dns::code(records::kMemberType) || (rrset.type != query.qtype && !any)) return false;
    response.addAnswer(rrset.wire, rrset.count);
    return true;
  });
  if (found) return QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
  if (query.qtype == dns::code(RrType::kTxt) && entry.find(dns::code(records::kMemberType)).count > 0)
    return writeText(entry, response, flags);
  if (isParents(query)) return QueryOutcome::nextOfExisting();
  // A non-terminal may turn out to hold records once the snapshot is complete.
  if (!entry.isHeld() && isIncomplete(freshness)) return writeNotReady(query, limit, flags);
  return writeNoData(query, response, flags);
}

QueryOutcome ClusterZone::writeGroup(const Query& query, const MemberGroup& group, size_t limit, uint16_t flags,
                                     Freshness freshness) const {
  if (freshness == Freshness::kLoading) return writeNotReady(query, limit, flags);
  ResponseBuilder response(query, limit);
  if (isOld(freshness)) response.setEde(EdeCode::kStaleAnswer);
  const bool any = query.qtype == dns::code(RrType::kAny);
  bool found = false;
  if (query.name()[1] == '_') {
    found = any || query.qtype == dns::code(RrType::kSrv);
    ServiceAnswer answer(query, response, store_.ttlSeconds());
    if (found) addInTurn(group, response, [&answer](const Entry& member) { return answer.add(member); });
    if (found) answer.addTargets();
  } else {
    for (const RrType type : {RrType::kA, RrType::kAaaa}) {
      const bool is_asked = any || query.qtype == dns::code(type);
      found = found || (is_asked && addMemberAddresses(group, response, type));
    }
  }
  if (!found && isIncomplete(freshness)) return writeNotReady(query, limit, flags);
  if (!found) return writeNoData(query, response, flags);
  return QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
}

// RFC 1035 §3.3.14, as keys and values (RFC 6763 §6).
QueryOutcome ClusterZone::writeText(const Entry& entry, ResponseBuilder& response, uint16_t flags) const {
  entry.visitRecords([&response, this](RrType type, uint32_t ttl_seconds, records::Rdata rdata) {
    if (type != records::kMemberType) return;
    std::array<uint8_t, MemberView::kMaxTextSize> text;
    const size_t size = MemberView(rdata).writeText(store_.generation(), text);
    if (size == 0) return;
    std::array<uint8_t, dns::kRecordHeadSize + MemberView::kMaxTextSize> record;
    uint8_t* const at = dns::putRecordHead(record.data(), dns::kQuestionPointer, RrType::kTxt, ttl_seconds, size);
    response.addAnswer({record.data(), dns::putBytes(at, std::span(text).first(size))}, 1);
  });
  return QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
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
    const auto name = store_.apex().nameServer().wire();
    const Entry* server = store_.table().find(hashBytes(name.data(), name.size(), store_.table().seed()), name);
    if (server != nullptr) addAddresses(response, *server, target);
  } else {
    addSoa(query, response, true);
  }
  return QueryOutcome::answer(response.finish(Rcode::kNoError, flags | dns::kFlagAa));
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
