// The answer of a zone to a query (RFC 1034 §4.3.2, with RFC 2308, 4035, 4592, 5155, 6672 and 9471).
//
//   name held, type held        NOERROR, the RRset; AA
//   name held, other type       NODATA with SOA; AA (names that only have others below them, too)
//   a CNAME                     it, and the answer for its target if that is in the zone; at most kMaxChain in a row;
//                               kAlias if it is not
//   below a DNAME               it, a CNAME made of it, and so on; YXDOMAIN if the name became too long
//   at or below a delegation    NS of it and addresses of these, without AA; DS at it is the zone's own
//   no such name                a wildcard's data, else NXDOMAIN with SOA
//   DS of the zone's own name   kParentSide: of whoever has the zone above
//
// With DO, signatures and the NSEC or NSEC3 records that prove what is said. Any thread; no allocation.
#pragma once

#include "dns/query.h"
#include "dns/response.h"
#include "zones/zone.h"

namespace idetcd::zones {

inline constexpr size_t kMaxChain = 16;

struct ZoneAnswer {
  enum class Kind : uint8_t {
    kAnswer,      // in the query's buffer, `size` bytes
    kAlias,       // as kAnswer; it ends with a CNAME that leads out of the zone
    kParentSide,  // nothing was written
    kNoName,      // NXDOMAIN, but nothing was written
  };
  Kind kind = Kind::kAnswer;
  size_t size = 0;
  uint32_t wildcard = 0;  // the hash of the name of the wildcard or DNAME that the queried name has matched; 0: none
};

// What the answer to a query for this type may need beside the RRset: other names' addresses, or names to compress.
constexpr bool isPlainType(uint16_t type) {
  return type == dns::code(dns::RrType::kA) || type == dns::code(dns::RrType::kAaaa) ||
         type == dns::code(dns::RrType::kTxt);
}

// REQUIRES: the name is in the zone; class IN; query.hash is of the zone's seed. `flags`: added to the header's.
// `passes_missing`: kNoName is wanted in place of NXDOMAIN.
ZoneAnswer lookUp(const Zone& zone, const dns::Query& query, size_t limit, uint16_t flags, bool passes_missing);

// NODATA for the zone's name.
size_t answerApexNoData(const Zone& zone, const dns::Query& query, size_t limit, uint16_t flags);

// The size of what lookUp() answers if that is a plain hit, else 0. REQUIRES: as lookUp(), but that the name may be outside of
// the zone: then it is none.
[[gnu::always_inline]] inline size_t answerHit(const Zone& zone, const dns::Query& query, size_t limit, uint16_t flags) {
  const records::Entry* entry = zone.table().find(query.hash, query.name());
  const bool is_plain = isPlainType(query.qtype) && !(query.dnssec_ok && zone.denial().kind() != Denial::Kind::kNone);
  if (entry == nullptr || !is_plain || (Zone::marksOf(*entry) & ~Zone::Marks{Zone::kDname}) != 0) return 0;
  const records::Entry::Rrset rrset = entry->find(query.qtype);
  return rrset.count > 0 ? dns::writeFastAnswer(query, rrset.wire, rrset.count, limit, flags | dns::kFlagAa) : 0;
}

}  // namespace idetcd::zones
