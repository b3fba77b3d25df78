#include "dns/name.h"

#include "base/text.h"

namespace idetcd::dns {

namespace {

// One byte of a label, an escape or a plain character. Advances `pos`; returns -1 for a broken escape.
int readByte(std::string_view text, size_t& pos) {
  const char c = text[pos++];
  if (c != '\\') return static_cast<uint8_t>(c);
  if (pos == text.size()) return -1;
  if (!isDigit(text[pos])) return static_cast<uint8_t>(text[pos++]);
  if (text.size() - pos < 3 || !isDigit(text[pos + 1]) || !isDigit(text[pos + 2])) return -1;
  const int value = (text[pos] - '0') * 100 + (text[pos + 1] - '0') * 10 + (text[pos + 2] - '0');
  pos += 3;
  return value <= 255 ? value : -1;
}

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

}  // namespace

Result<Name> Name::parse(std::string_view text) {
  if (text.empty()) return fail("a domain name is empty");
  Name name;
  if (text == ".") return name;
  size_t label = 0;  // offset of the length byte of the label being read
  size_t end = 1;    // where its next byte goes
  size_t pos = 0;
  while (pos < text.size()) {
    const bool separator = text[pos] == '.';
    const int byte = separator ? 0 : readByte(text, pos);
    if (byte < 0) return fail("a bad escape in a domain name");
    if (separator) {
      ++pos;
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

}  // namespace idetcd::dns
