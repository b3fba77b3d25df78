#include "dns/packed_response.h"

#include "dns/record.h"
#include "dns/response.h"

namespace idetcd::dns {

namespace {

// The whole RRsets at the front of the answer within `room` bytes. A CNAME chain's links, one type in a row, are one.
std::pair<std::span<const uint8_t>, uint16_t> answersThatFit(const PackedResponse& response, size_t room) {
  size_t size = 0;
  uint16_t whole = 0;
  const std::span<const uint8_t> body = response.body();
  const std::span<const uint16_t> ttls = response.ttlOffsets();
  for (uint16_t i = 0; i < response.answers; ++i) {
    const uint8_t* ttl = &body[ttls[i]];
    const size_t end = ttls[i] + size_t{6} + load16(ttl + 4);
    if (end > room) break;
    const bool last_of_type = i + 1 == response.answers || !std::equal(ttl - 4, ttl - 2, &body[ttls[i + 1]] - 4);
    if (!last_of_type) continue;
    size = end;
    whole = static_cast<uint16_t>(i + 1);
  }
  return {body.first(size), whole};
}

// Orders each run of A or AAAA records of one size with a pointer as owner. `ttls`: where the TTLs are.
void orderAnswers(std::span<uint8_t> answer, std::span<const uint16_t> ttls, const AddressOrder& order) {
  const auto end_of = [&](size_t i) { return ttls[i] + size_t{6} + load16(&answer[ttls[i] + 4]); };
  // The size of record i if it may be moved, else 0.
  const auto size_of = [&](size_t i) -> size_t {
    const size_t start = i == 0 ? 0 : end_of(i - 1);
    const uint16_t type = load16(&answer[ttls[i] - 4u]);
    const bool is_address = type == code(RrType::kA) || type == code(RrType::kAaaa);
    return is_address && ttls[i] - start == kTtlOffset ? end_of(i) - start : 0;
  };
  for (size_t i = 0; i < ttls.size();) {
    const size_t size = size_of(i);
    size_t next = i + 1;
    while (size > 0 && next < ttls.size() && size_of(next) == size) ++next;
    if (next - i > 1) {
      orderAddresses(answer.subspan(ttls[i] - kTtlOffset, (next - i) * size), size, order);
    }
    i = next;
  }
}

void preferAddresses(std::span<uint8_t> records, size_t record_size, std::span<const IpNetwork> preferred) {
  struct Ranked {
    size_t rank;
    size_t at;
  };
  std::vector<Ranked> ranked;
  for (size_t at = 0; at < records.size(); at += record_size) {
    const auto address = IpAddress::fromBytes(records.subspan(at + kRecordHeadSize, record_size - kRecordHeadSize));
    const auto network = std::find_if(preferred.begin(), preferred.end(),
                                      [&address](const IpNetwork& candidate) { return candidate.contains(address); });
    ranked.push_back({static_cast<size_t>(network - preferred.begin()), at});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) { return a.rank < b.rank; });
  const std::vector<uint8_t> before(records.begin(), records.end());
  auto to = records.begin();
  for (const Ranked& record : ranked) {
    const auto from = before.begin() + static_cast<ptrdiff_t>(record.at);
    to = std::copy(from, from + static_cast<ptrdiff_t>(record_size), to);
  }
}

}  // namespace

PackedResponsePtr PackedResponse::make(const ResponseSections& sections, std::span<const uint8_t> body,
                                       std::span<const uint16_t> ttl_offsets) {
  assert(body.size() <= kMaxMessageSize && std::ranges::is_sorted(ttl_offsets));
  const size_t offsets_at = sizeof(PackedResponse) + align(body.size());
  auto* block = static_cast<uint8_t*>(::operator new(offsets_at + ttl_offsets.size_bytes()));
  auto* packed = ::new (block) PackedResponse(sections);
  packed->body_size_ = static_cast<uint16_t>(body.size());
  packed->ttl_count_ = static_cast<uint16_t>(ttl_offsets.size());
  block[offsets_at - 1] = 0;  // where the records end one byte before the offsets
  std::copy(body.begin(), body.end(), block + sizeof(PackedResponse));
  std::copy(ttl_offsets.begin(), ttl_offsets.end(), reinterpret_cast<uint16_t*>(block + offsets_at));
  return PackedResponsePtr(packed);
}

namespace {

// `bare`: an OPT record has no options.
size_t write(const PackedResponse& response, const Query& query, size_t limit, const WriteOptions& options, bool bare) {
  ResponseBuilder builder(query, limit);
  const bool has_ede = options.ede || response.has_ede;
  if (has_ede && !bare) builder.setEde(options.ede.value_or(static_cast<EdeCode>(response.ede)));
  const bool whole = !(options.minimal && response.answers > 0);
  const size_t start = builder.position();
  const auto first = [&response](size_t end) { return response.body().first(end); };
  const bool written =
      (whole && builder.setBody(response.body(), response.answers, response.authorities, response.additionals)) ||
      (whole && builder.setBody(first(response.authority_end), response.answers, response.authorities, 0)) ||
      builder.setWholeBody(first(response.proof_end), response.answers, response.proofs);
  // No transport has more room: the options give way, then OPT.
  if (!written && query.has_edns && limit == kMaxMessageSize) {
    Query plain = query;
    plain.has_edns = !bare;
    plain.asked_options = 0;
    plain.nsid = nullptr;
    return write(response, plain, limit, options, true);
  }
  if (!written) {
    const auto [records, count] = answersThatFit(response, builder.room());
    builder.truncateTo(records, count);
  }
  const size_t records_end = builder.position();
  for (const uint16_t offset : response.ttlOffsets()) {
    if (start + offset >= records_end) break;
    uint8_t* ttl = builder.at(start + offset);
    const uint32_t original = std::clamp(load32(ttl), options.min_ttl_seconds, options.max_ttl_seconds);
    store32(ttl, options.ttl_seconds.value_or(original - std::min(original, options.age_seconds)));
  }
  if (written && options.addresses.isGiven() && response.answers > 1) {
    orderAnswers({builder.at(start), response.answer_size}, response.ttlOffsets().first(response.answers),
                 options.addresses);
  }
  // AD only for clients that know it (RFC 6840 §5.8).
  const bool wants_ad = query.dnssec_ok || (query.flags & kFlagAd) != 0;
  const uint16_t flags = kFlagRa | (response.authentic_data && wants_ad ? kFlagAd : 0);
  const bool expressible = code(response.rcode) <= kRcodeMask || query.has_edns;
  return builder.finish(expressible ? response.rcode : Rcode::kServFail, flags);
}

}  // namespace

size_t writePackedResponse(const PackedResponse& response, const Query& query, size_t limit,
                           const WriteOptions& options) {
  return write(response, query, limit, options, false);
}

void orderAddresses(std::span<uint8_t> records, size_t record_size, const AddressOrder& order) {
  const size_t count = records.size() / record_size;
  const auto first = static_cast<ptrdiff_t>(order.rotation % count * record_size);
  std::rotate(records.begin(), records.begin() + first, records.end());
  if (!order.preferred.empty()) preferAddresses(records, record_size, order.preferred);
}

}  // namespace idetcd::dns
