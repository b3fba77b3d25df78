#include "base/ip_network.h"

#include "base/text.h"

namespace idetcd {

namespace {

constexpr uint8_t kMappedBits = 96;  // in front of the IPv4 address

}  // namespace

Result<IpNetwork> IpNetwork::parse(std::string_view text) {
  const auto illegal = [text] { return fail(fmt::format("illegal CIDR notation '{}'", text)); };
  const size_t slash = text.find('/');
  const auto address = IpAddress::parse(text.substr(0, slash));
  if (!address) return illegal();
  const auto max_bits = static_cast<uint8_t>(address->size() * 8);
  IpNetwork network{*address, max_bits};
  if (slash != std::string_view::npos) {
    const auto prefix_length = parseNumber<uint8_t>(text.substr(slash + 1));
    if (!prefix_length || *prefix_length > max_bits) return illegal();
    network.prefix_length = *prefix_length;
  }
  const IpAddress unmapped = address->unmapped();
  if (address->isV6() && unmapped.isV4() && network.prefix_length >= kMappedBits) {
    network.address = unmapped;
    network.prefix_length = static_cast<uint8_t>(network.prefix_length - kMappedBits);
  }
  return network;
}

bool IpNetwork::contains(const IpAddress& other) const {
  const IpAddress candidate = other.unmapped();
  if (candidate.family() != address.family()) return false;
  const size_t whole = prefix_length / 8;
  for (size_t i = 0; i < whole; ++i) {
    if (candidate.data()[i] != address.data()[i]) return false;
  }
  const unsigned rest = prefix_length % 8;
  return rest == 0 || (candidate.data()[whole] ^ address.data()[whole]) >> (8 - rest) == 0;
}

}  // namespace idetcd
