#include "directive/idetcd/cluster_reverse.h"

#include "dns/name.h"
#include "dns/record.h"
#include "dns/response.h"

namespace idetcd::directive {

using dns::RrType;
using records::Entry;
using resolve::QueryOutcome;

namespace {

bool isInReverseTree(std::span<const uint8_t> name) {
  const auto is_below = [name](std::string_view top) {
    return name.size() > top.size() && std::equal(top.begin(), top.end(), name.end() - static_cast<ptrdiff_t>(top.size()));
  };
  return is_below({"\7in-addr\4arpa\0", 14}) || is_below({"\3ip6\4arpa\0", 10});
}

void addPointer(std::span<const uint8_t> name, uint32_t ttl_seconds, dns::ResponseBuilder& response) {
  std::array<uint8_t, dns::kRecordHeadSize + dns::kMaxNameLength> record;
  uint8_t* const rdata =
      dns::putRecordHead(record.data(), dns::kQuestionPointer, RrType::kPtr, ttl_seconds, name.size());
  response.addAnswer({record.data(), dns::putBytes(rdata, name)}, 1);
}

// Of the records of one address.
uint32_t lowestTtl(std::span<const Entry* const> entries, const IpAddress& address) {
  uint32_t lowest = std::numeric_limits<uint32_t>::max();
  for (const Entry* entry : entries) {
    records::visitAddresses(*entry, [&](const IpAddress& a, uint32_t ttl_seconds) {
      if (a == address) lowest = std::min(lowest, ttl_seconds);
    });
  }
  return lowest;
}

}  // namespace

QueryOutcome ClusterReverse::answer(const dns::Query& query, size_t limit, uint16_t flags, BootClock::time_point now) const {
  if (!isInReverseTree(query.name())) return QueryOutcome::next();
  const auto address = dns::addressOfReverseName(query.name());
  if (!address)
    return store_.reverse().isAboveHeld(query.name()) ? QueryOutcome::nextOfExisting() : QueryOutcome::next();
  const OwnAddress own = own_(*address);
  if (own.is_own && !own.name) return QueryOutcome::next();
  const records::ReverseIndex::Names found =
      own.is_own ? records::ReverseIndex::Names() : store_.reverse().find(*address);
  if (!own.is_own && found.entries().empty()) return QueryOutcome::next();
  if (query.qtype == dns::code(RrType::kDs)) return QueryOutcome::nextOfExisting();
  if (query.qtype != dns::code(RrType::kPtr) && query.qtype != dns::code(RrType::kAny))
    return answerNoData(query, limit, flags);
  dns::ResponseBuilder response(query, limit);
  if (own.is_own) {
    addPointer(own.name->wire(), own.ttl_seconds, response);
  } else {
    if (isOld(store_.freshness(now))) response.setEde(dns::EdeCode::kStaleAnswer);
    const uint32_t ttl_seconds = lowestTtl(found.entries(), *address);
    for (const Entry* entry : found.entries()) addPointer(entry->name(), ttl_seconds, response);
  }
  return QueryOutcome::answer(response.finish(dns::Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa)));
}

QueryOutcome ClusterReverse::answerNoData(const dns::Query& query, size_t limit, uint16_t flags) const {
  dns::ResponseBuilder response(query, limit);
  response.addAuthority(store_.apex().soa(dns::kHeaderSize, store_.serial()).span(), 1);
  return QueryOutcome::answer(response.finish(dns::Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa)));
}

}  // namespace idetcd::directive
