// What QueryMeter does for each query: for those who call it, so that it becomes part of the router's path.
#pragma once

#include <sys/socket.h>

#include "dns/message_reader.h"
#include "dns/types.h"
#include "resolve/query_meter.h"

namespace idetcd::resolve {

namespace internal {

inline constexpr uint8_t kOther = QueryMeter::kTypes.size() - 1;

constexpr size_t indexOf(std::string_view type) {
  return static_cast<size_t>(std::ranges::find(QueryMeter::kTypes, type) - QueryMeter::kTypes.begin());
}

// By type; those above have no label of their own.
inline constexpr std::array<uint8_t, 256> kTypeIndex = [] {
  std::array<uint8_t, 256> index{};
  index.fill(kOther);
  constexpr std::pair<uint16_t, std::string_view> kNumbers[]{
      {1, "A"},       {2, "NS"},     {5, "CNAME"},  {6, "SOA"},    {12, "PTR"},   {15, "MX"},
      {16, "TXT"},    {28, "AAAA"},  {33, "SRV"},   {43, "DS"},    {46, "RRSIG"}, {47, "NSEC"},
      {48, "DNSKEY"}, {50, "NSEC3"}, {65, "HTTPS"}, {251, "IXFR"}, {252, "AXFR"}, {255, "ANY"}};
  for (const auto& [number, name] : kNumbers) index[number] = static_cast<uint8_t>(indexOf(name));
  return index;
}();

inline size_t familyOf(const Request& request) { return request.source->sa_family == AF_INET6 ? 1 : 0; }
inline size_t transportOf(const Request& request) { return static_cast<size_t>(request.transport); }

// The header has four bits of it (RFC 6891 §6.1.3). Of the longer ones this server sends two, whose four bits it sends
// for no other reason: NOERROR is not the answer to a query of another EDNS version, and YXRRSET answers an UPDATE.
inline size_t rcodeOf(const dns::Query& query) {
  const auto low = static_cast<size_t>(dns::HeaderView(query.message).rcode());
  if (low == (dns::code(dns::Rcode::kBadVers) & 15) && query.error == dns::Rcode::kBadVers) [[unlikely]]
    return dns::code(dns::Rcode::kBadVers);
  if (low == (dns::code(dns::Rcode::kBadCookie) & 15)) [[unlikely]]
    return dns::code(dns::Rcode::kBadCookie);
  return low;
}

inline size_t typeIndexOf(uint16_t qtype) { return qtype < kTypeIndex.size() ? kTypeIndex[qtype] : kOther; }

}  // namespace internal

inline void QueryMeter::onQuery(const dns::Query& query, const Request& request) {
  const size_t transport = internal::transportOf(request);
  requests[transport][internal::familyOf(request)][internal::typeIndexOf(query.qtype)].add();
  request_sizes[transport].observe(query.size);
  requests_with_do.add(query.dnssec_ok ? 1 : 0);
}

inline void QueryMeter::countInBatch(const dns::Query& query, size_t family, const QueryOutcome& outcome, BatchSums& sums) {
  constexpr auto kUdp = static_cast<size_t>(Transport::kUdp);
  requests[kUdp][family][internal::typeIndexOf(query.qtype)].add();
  request_sizes[kUdp].buckets_[SizeHistogram::bucketOf(query.size)].add();
  sums.request_bytes += query.size;
  sums.with_do += query.dnssec_ok ? 1 : 0;
  if (outcome.kind != QueryOutcome::Kind::kAnswer) return;
  responses[outcome.answered_by][static_cast<size_t>(dns::HeaderView(query.message).rcode())].add();
  response_sizes[kUdp].buckets_[SizeHistogram::bucketOf(outcome.size)].add();
  sums.response_bytes += outcome.size;
  ++sums.answered;
}

inline void QueryMeter::add(const BatchSums& sums) {
  constexpr auto kUdp = static_cast<size_t>(Transport::kUdp);
  request_sizes[kUdp].sum_.add(sums.request_bytes);
  response_sizes[kUdp].sum_.add(sums.response_bytes);
  requests_with_do.add(sums.with_do);
  untimed_ += sums.answered;
}

inline void QueryMeter::onAnswer(const dns::Query& query, const Request& request, size_t size, DirectiveId by) {
  responses[by][internal::rcodeOf(query)].add();
  response_sizes[internal::transportOf(request)].observe(size);
}

}  // namespace idetcd::resolve
