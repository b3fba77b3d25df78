#include "dns/reverse_name.h"

namespace idetcd::dns {

namespace {

constexpr std::string_view kV4Zone("\7in-addr\4arpa\0", 14);
constexpr std::string_view kV6Zone("\3ip6\4arpa\0", 10);
constexpr size_t kV6Size = 32 * 2 + kV6Zone.size();

bool endsWith(std::span<const uint8_t> name, std::string_view zone) {
  return name.size() > zone.size() && std::ranges::equal(zone, name.last(zone.size()));
}

// As reverseName() writes it: without leading zeros.
std::optional<uint8_t> octetOf(std::span<const uint8_t> label) {
  if (label.empty() || label.size() > 3 || (label.size() > 1 && label[0] == '0')) return std::nullopt;
  unsigned value = 0;
  for (const uint8_t c : label) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value <= 255 ? std::optional(static_cast<uint8_t>(value)) : std::nullopt;
}

std::optional<uint8_t> nibbleOf(uint8_t c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

std::optional<IpAddress> v4Of(std::span<const uint8_t> labels) {
  std::array<uint8_t, 4> octets;
  size_t pos = 0;
  for (size_t i = octets.size(); i-- > 0;) {
    if (pos == labels.size() || labels[pos] > 3 || labels.size() - pos <= labels[pos]) return std::nullopt;
    const auto octet = octetOf(labels.subspan(pos + 1, labels[pos]));
    if (!octet) return std::nullopt;
    octets[i] = *octet;
    pos += labels[pos] + 1u;
  }
  return pos == labels.size() ? std::optional(IpAddress::v4(octets)) : std::nullopt;
}

std::optional<IpAddress> v6Of(std::span<const uint8_t> labels) {
  std::array<uint8_t, 16> octets;
  for (size_t i = 0; i < octets.size(); ++i) {
    const uint8_t* const pair = labels.data() + (octets.size() - 1 - i) * 4;
    const auto low = nibbleOf(pair[1]);
    const auto high = nibbleOf(pair[3]);
    if (pair[0] != 1 || pair[2] != 1 || !low || !high) return std::nullopt;
    octets[i] = static_cast<uint8_t>(*high << 4 | *low);
  }
  return IpAddress::v6(octets);
}

}  // namespace

Name reverseName(const IpAddress& address) {
  std::string text;
  for (size_t i = address.size(); i-- > 0;) {
    const unsigned octet = address.data()[i];
    text += address.isV4() ? fmt::format("{}.", octet) : fmt::format("{:x}.{:x}.", octet & 15, octet >> 4);
  }
  return *Name::parse(text + (address.isV4() ? "in-addr.arpa." : "ip6.arpa."));
}

std::optional<IpAddress> addressOfReverseName(std::span<const uint8_t> name) {
  if (endsWith(name, kV4Zone)) return v4Of(name.first(name.size() - kV4Zone.size()));
  if (name.size() == kV6Size && endsWith(name, kV6Zone)) return v6Of(name.first(name.size() - kV6Zone.size()));
  return std::nullopt;
}

}  // namespace idetcd::dns
