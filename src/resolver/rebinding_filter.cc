#include "resolver/rebinding_filter.h"

#include "dns/wire.h"

namespace idetcd::resolver {

using dns::code;

namespace {

constexpr uint16_t kIpv4Hint = 4;  // RFC 9460 §14.3.2
constexpr uint16_t kIpv6Hint = 6;
constexpr size_t kSizeOfV4 = 4;
constexpr size_t kSizeOfV6 = 16;

// Where networks of IPv6 addresses have the IPv4 address that they stand for.
struct Embedding {
  std::array<uint8_t, 12> prefix;
  size_t prefix_size;
};
constexpr Embedding kEmbeddings[]{
    {{0, 0x64, 0xff, 0x9b}, 12},  // 64:ff9b::/96
    {{0x20, 0x02}, 2},            // 2002::/16
};

std::optional<IpAddress> embeddedV4(std::span<const uint8_t> v6) {
  const uint8_t* bytes = v6.data();
  for (const Embedding& embedding : kEmbeddings) {
    if (!std::equal(bytes, bytes + embedding.prefix_size, embedding.prefix.begin())) continue;
    return IpAddress::fromBytes(v6.subspan(embedding.prefix_size, kSizeOfV4));
  }
  return std::nullopt;
}

RebindingFilter::Response withoutAdditional(const StoredResponse& response) {
  auto rest = std::make_shared<StoredResponse>();
  dropAdditional(response, *rest);
  return rest;
}

RebindingFilter::Response blocked(const StoredResponse& response) {
  const bool cacheable = response.kind != ResponseKind::kUncacheable;
  auto nothing = std::make_shared<StoredResponse>();
  nothing->kind = cacheable ? ResponseKind::kNoData : ResponseKind::kUncacheable;
  nothing->ttl_seconds = response.ttl_seconds;
  nothing->packed = dns::PackedResponse::make({.ede = code(dns::EdeCode::kBlocked), .has_ede = true}, {}, {});
  return nothing;
}

}  // namespace

RebindingFilter::Response RebindingFilter::apply(const dns::Query& query, const Response& response) {
  assert(response != nullptr);
  if (response != last_) {
    last_filtered_ = filter(query, response);
    last_ = response;
  }
  return last_filtered_;
}

RebindingFilter::Response RebindingFilter::filter(const dns::Query& query, const Response& response) {
  const dns::PackedResponse& packed = *response->packed;
  if (isWithheld(query, *response, 0, packed.answers)) {
    counters_.withheld.add();
    if (errors_) errors_->onFailed(query, packed.rcode, "withheld: it has a private address");
    return blocked(*response);
  }
  const size_t additional = size_t{packed.answers} + packed.authorities;
  if (isWithheld(query, *response, additional, additional + packed.additionals)) return withoutAdditional(*response);
  return response;
}

// Whether one of these records, counted over all sections, has such an address.
bool RebindingFilter::isWithheld(const dns::Query& query, const StoredResponse& response, size_t first,
                                 size_t end) const {
  // A record: owner | type 2 | class 2 | TTL 4 | RDLENGTH 2 | RDATA
  constexpr size_t kTypeBefore = 4;
  constexpr size_t kLengthBehind = 4;
  constexpr size_t kRdataBehind = 6;
  const std::span<const uint8_t> body = response.packed->body();
  const auto offsets = response.packed->ttlOffsets().subspan(first, end - first);
  return std::ranges::any_of(offsets, [&](uint16_t ttl) {
    const size_t size = dns::load16(&body[ttl + kLengthBehind]);
    return isWithheld(query, dns::load16(&body[ttl - kTypeBefore]), body.subspan(ttl + kRdataBehind, size));
  });
}

bool RebindingFilter::isWithheld(const dns::Query& query, uint16_t type, std::span<const uint8_t> rdata) const {
  if (type == code(dns::RrType::kA) || type == code(dns::RrType::kAaaa)) {
    return isAddressWithheld(query, rdata);  // 4 or 16 bytes (resolver/stored_response)
  }
  return (type == code(dns::RrType::kSvcb) || type == code(dns::RrType::kHttps)) && isHintWithheld(query, rdata);
}

// SvcPriority 2 | TargetName, uncompressed | SvcParams: key 2 | length 2 | value (RFC 9460 §2.2). What cannot be read is
// withheld: someone may read it.
bool RebindingFilter::isHintWithheld(const dns::Query& query, std::span<const uint8_t> rdata) const {
  constexpr size_t kPrioritySize = 2;
  constexpr size_t kParamHeadSize = 4;
  size_t pos = kPrioritySize;
  while (pos < rdata.size() && rdata[pos] != 0) pos += 1u + rdata[pos];
  if (pos >= rdata.size()) return true;
  auto params = rdata.subspan(pos + 1);
  while (!params.empty()) {
    if (params.size() < kParamHeadSize) return true;
    const uint16_t key = dns::load16(params.data());
    const size_t size = dns::load16(&params[2]);
    if (params.size() - kParamHeadSize < size) return true;
    auto value = params.subspan(kParamHeadSize, size);
    params = params.subspan(kParamHeadSize + size);
    if (key != kIpv4Hint && key != kIpv6Hint) continue;
    const size_t address_size = key == kIpv4Hint ? kSizeOfV4 : kSizeOfV6;
    if (value.size() % address_size != 0) return true;
    for (; !value.empty(); value = value.subspan(address_size)) {
      if (isAddressWithheld(query, value.first(address_size))) return true;
    }
  }
  return false;
}

bool RebindingFilter::isAddressWithheld(const dns::Query& query, std::span<const uint8_t> address) const {
  const auto is_withheld = [&](const IpAddress& ip) {
    return rules_->judge(ip, query.name(), std::nullopt) != resolve::Gate::AclVerdict::kAllow;
  };
  if (is_withheld(IpAddress::fromBytes(address))) return true;
  const auto v4 = address.size() == kSizeOfV6 ? embeddedV4(address) : std::nullopt;
  return v4 && is_withheld(*v4);
}

}  // namespace idetcd::resolver
