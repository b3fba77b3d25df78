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

std::optional<AddressRange> addressesBelow(std::span<const uint8_t> name) {
  const bool is_v4 = endsWith(name, kV4Zone);
  if (!is_v4 && !endsWith(name, kV6Zone)) return std::nullopt;
  std::span<const uint8_t> labels = name.first(name.size() - (is_v4 ? kV4Zone : kV6Zone).size());
  const size_t whole = is_v4 ? 4 : 32;
  std::array<uint8_t, 32> values;  // the last one comes first in an address
  size_t count = 0;
  while (!labels.empty()) {
    if (count + 1 == whole || labels.front() >= labels.size()) return std::nullopt;
    const auto label = labels.subspan(1, labels.front());
    const auto value = is_v4 ? octetOf(label) : label.size() == 1 ? nibbleOf(label.front()) : std::nullopt;
    if (!value) return std::nullopt;
    values[count++] = *value;
    labels = labels.subspan(1 + label.size());
  }
  std::array<uint8_t, 16> low{};
  std::array<uint8_t, 16> high;
  high.fill(0xff);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t value = values[count - 1 - i];
    const unsigned shift = is_v4 || i % 2 != 0 ? 0 : 4;
    const uint8_t mask = is_v4 ? 0xff : static_cast<uint8_t>(0x0f << shift);
    const size_t octet = is_v4 ? i : i / 2;
    low[octet] = static_cast<uint8_t>(low[octet] | value << shift);
    high[octet] = static_cast<uint8_t>((high[octet] & ~mask) | value << shift);
  }
  const size_t size = is_v4 ? 4 : 16;
  return AddressRange{IpAddress::fromBytes(std::span(low).first(size)),
                      IpAddress::fromBytes(std::span(high).first(size))};
}

}  // namespace idetcd::dns
