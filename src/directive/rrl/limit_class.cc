#include "directive/rrl/limit_class.h"

#include "dns/message_reader.h"
#include "dns/name_reader.h"

namespace idetcd::directive {

namespace {

// The hash of the owner of the first record of this type in the authority section; 0: there is none.
uint64_t ownerInAuthority(const dns::Query& query, std::span<const uint8_t> response, dns::RrType type, HashSeed seed) {
  dns::MessageReader reader(response, query.question_end);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (record.section != dns::Section::kAuthority || record.type != dns::code(type)) continue;
    dns::ExpandedName owner;
    if (dns::expandName(response, record.owner, owner) == 0) return 0;
    dns::foldCase(owner.wire.data(), owner.size, owner.wire.data());
    return hashBytes(owner.wire.data(), owner.size, seed);
  }
  return 0;
}

// Of the name without its first label, where no SOA says which zone it is.
uint64_t parentOf(const dns::Query& query, HashSeed seed) {
  const size_t label = query.qname_size > 1 ? query.qname[0] + size_t{1} : 0;
  return hashBytes(query.qname + label, query.qname_size - label, seed);
}

}  // namespace

ClassifiedResponse classify(const dns::Query& query, std::span<const uint8_t> response, HashSeed seed) {
  using dns::Rcode;
  using dns::RrType;
  const dns::HeaderView header(response.data());
  if (header.rcode() == Rcode::kNxDomain) {
    const uint64_t zone = ownerInAuthority(query, response, RrType::kSoa, seed);
    return {LimitClass::kNxDomain, zone != 0 ? zone : parentOf(query, seed)};
  }
  if (header.rcode() != Rcode::kNoError) return {LimitClass::kError, 0};
  if (header.answers() > 0 || header.isTruncated()) return {LimitClass::kAnswer, query.hash ^ query.qtype};
  if (header.authorities() > 0 && ownerInAuthority(query, response, RrType::kSoa, seed) == 0) {
    const uint64_t zone = ownerInAuthority(query, response, RrType::kNs, seed);
    if (zone != 0) return {LimitClass::kReferral, zone};
  }
  return {LimitClass::kNoData, query.hash};
}

}  // namespace idetcd::directive
