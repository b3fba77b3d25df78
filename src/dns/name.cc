#include "dns/name.h"

#include "base/text.h"

namespace idetcd::dns {

namespace {

void appendEscaped(std::string& out, uint8_t c) {
  switch (c) {
    case '.':
    case '\\':
    case '"':
    case '(':
    case ')':
    case ';':
    case '@':
    case '$':
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
      return;
    default:
      if (c > 0x20 && c < 0x7f) {
        out.push_back(static_cast<char>(c));
      } else {
        out += fmt::format("\\{:03}", c);
      }
  }
}

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

int readEscapedByte(std::string_view text, size_t& pos) {
  const char c = text[pos++];
  if (c != '\\') return static_cast<uint8_t>(c);
  if (pos == text.size()) return -1;
  if (!isDigit(text[pos])) return static_cast<uint8_t>(text[pos++]);
  if (text.size() - pos < 3 || !isDigit(text[pos + 1]) || !isDigit(text[pos + 2])) return -1;
  const int value = (text[pos] - '0') * 100 + (text[pos + 1] - '0') * 10 + (text[pos + 2] - '0');
  pos += 3;
  return value <= 255 ? value : -1;
}

Result<Name> Name::parse(std::string_view text) {
  if (text.empty()) return fail("a domain name is empty");
  Name name;
  if (text == ".") return name;
  size_t label = 0;  // offset of the length byte of the label being read
  size_t end = 1;    // where its next byte goes
  size_t pos = 0;
  while (pos < text.size()) {
    const bool separator = text[pos] == '.';
    const bool is_plain = text[pos] != '\\';
    const int byte = is_plain ? static_cast<uint8_t>(text[pos++]) : readEscapedByte(text, pos);
    if (byte < 0) return fail("a bad escape in a domain name");
    if (separator) {
      if (end - label == 1) return fail("an empty label in a domain name");
      name.wire_[label] = static_cast<uint8_t>(end - label - 1);
      label = end++;
    } else {
      if (end - label > kMaxLabelLength) return fail("a label of more than 63 bytes");
      if (end >= kMaxNameLength) return fail("a domain name of more than 255 bytes");
      name.wire_[end++] = toLower(static_cast<uint8_t>(byte));
    }
  }
  if (end - label > 1) {  // no trailing dot
    name.wire_[label] = static_cast<uint8_t>(end - label - 1);
    label = end++;
  }
  if (end > kMaxNameLength) return fail("a domain name of more than 255 bytes");
  name.wire_[label] = 0;
  name.size_ = static_cast<uint8_t>(end);
  return name;
}

Name Name::fromWire(std::span<const uint8_t> wire) {
  assert(!wire.empty() && wire.size() <= kMaxNameLength);
  Name name;
  name.size_ = static_cast<uint8_t>(wire.size());
  for (size_t i = 0; i < wire.size(); ++i) name.wire_[i] = toLower(wire[i]);  // a length byte is below 'A'
  return name;
}

Name Name::parent() const {
  assert(!isRoot());
  const size_t skip = wire_[0] + 1u;
  Name name;
  name.size_ = static_cast<uint8_t>(size_ - skip);
  std::memcpy(name.wire_.data(), wire_.data() + skip, name.size_);
  return name;
}

bool Name::isWithin(const Name& zone) const { return isNameWithin(wire(), zone); }

std::string Name::toString() const { return nameToString(wire_.data()); }

bool isNameWithin(std::span<const uint8_t> name, const Name& zone) {
  if (zone.isRoot()) return true;
  if (name.size() < zone.size()) return false;
  const size_t offset = name.size() - zone.size();
  if (std::memcmp(name.data() + offset, zone.data(), zone.size()) != 0) return false;
  size_t pos = 0;
  while (pos < offset) pos += name[pos] + 1u;  // the tail must begin at a label, not inside one
  return pos == offset;
}

std::string nameToString(const uint8_t* wire) {
  if (*wire == 0) return ".";
  std::string text;
  for (size_t pos = 0; wire[pos] != 0; pos += wire[pos] + 1u) {
    for (size_t i = 1; i <= wire[pos]; ++i) appendEscaped(text, wire[pos + i]);
    text.push_back('.');
  }
  return text;
}

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
