#include "resolver/nat64_prefix.h"

#include "base/text.h"

namespace idetcd::resolver {

namespace {

constexpr size_t kV4Size = 4;
constexpr size_t kReserved = 8;  // the octet that is zero
constexpr uint8_t kLengths[]{32, 40, 48, 56, 64, 96};

// Where the octets of the IPv4 address stand behind a prefix of `size` octets.
std::array<size_t, kV4Size> placesBehind(size_t size) {
  std::array<size_t, kV4Size> places;
  size_t at = size;
  for (size_t& place : places) {
    if (at == kReserved) ++at;
    place = at++;
  }
  return places;
}

}  // namespace

Result<Nat64Prefix> Nat64Prefix::parse(std::string_view text) {
  const size_t slash = text.find('/');
  const auto address = IpAddress::parse(text.substr(0, slash));
  const auto length = slash == text.npos ? std::nullopt : parseNumber<uint8_t>(text.substr(slash + 1));
  if (!address || !address->isV6() || !length) return fail(fmt::format("'{}' is no IPv6 prefix", text));
  if (std::ranges::find(kLengths, *length) == std::end(kLengths)) {
    return fail(fmt::format("'{}': the length of a prefix is 32, 40, 48, 56, 64 or 96", text));
  }
  Nat64Prefix prefix;
  prefix.size_ = static_cast<uint8_t>(*length / 8);
  prefix.octets_ = {};
  std::copy_n(address->data(), prefix.size_, prefix.octets_.begin());
  if (prefix.octets_[kReserved] != 0) return fail(fmt::format("'{}': bits 64 to 71 must be zero", text));
  return prefix;
}

bool Nat64Prefix::mayEmbed(const IpAddress& v4) const {
  assert(v4.isV4());
  return octets_ != kWellKnown || !(v4.isPrivate() || v4.isUnspecified() || v4.isMulticast());
}

Nat64Prefix::V6 Nat64Prefix::embed(std::span<const uint8_t> v4) const {
  assert(v4.size() == kV4Size);
  V6 v6 = octets_;
  size_t i = 0;
  for (const size_t place : placesBehind(size_)) v6[place] = v4[i++];
  return v6;
}

std::optional<IpAddress> Nat64Prefix::extract(const IpAddress& v6) const {
  assert(v6.isV6());
  const uint8_t* octets = v6.data();
  if (!std::equal(octets, octets + size_, octets_.begin()) || octets[kReserved] != 0) return std::nullopt;
  std::array<uint8_t, kV4Size> v4;
  std::ranges::transform(placesBehind(size_), v4.begin(), [octets](size_t place) { return octets[place]; });
  return IpAddress::v4(v4);
}

}  // namespace idetcd::resolver
