// Domain names in wire format (RFC 1035 §3.1): length-prefixed labels, the root label last, at most 255 bytes.
// Any thread; no allocation except in toString().
#pragma once

#include "base/ip_address.h"
#include "base/result.h"
#include "dns/wire.h"

namespace idetcd::dns {

inline constexpr size_t kMaxNameLength = 255;  // bytes, with the root label (RFC 1035 §2.3.4)
inline constexpr size_t kMaxLabelLength = 63;

// ASCII lower case, and nothing else (RFC 4343): bytes over 0x7f and punctuation stay as they are.
constexpr uint8_t toLower(uint8_t c) { return c >= 'A' && c <= 'Z' ? static_cast<uint8_t>(c | 0x20) : c; }

// A canonical name: absolute, lower case. Names compare equal exactly when DNS says they are the same.
class Name {
 public:
  Name() : wire_{0}, size_(1) {}  // the root

  // Presentation format (RFC 1035 §5.1) with \DDD and \X escapes; the trailing dot may be missing. "" is an error, "."
  // is the root. Upper case is folded.
  static Result<Name> parse(std::string_view text);
  // REQUIRES: `wire` is one valid uncompressed name of wire.size() bytes. Upper case is folded.
  static Name fromWire(std::span<const uint8_t> wire);

  const uint8_t* data() const { return wire_.data(); }
  size_t size() const { return size_; }  // bytes, with the root label
  std::span<const uint8_t> wire() const { return {wire_.data(), size_}; }
  bool isRoot() const { return size_ == 1; }

  // REQUIRES: !isRoot().
  Name parent() const;
  // True for the zone itself too.
  bool isWithin(const Name& zone) const;

  std::string toString() const;  // escaped, with the trailing dot

  friend bool operator==(const Name& a, const Name& b) {
    return a.size_ == b.size_ && std::memcmp(a.wire_.data(), b.wire_.data(), a.size_) == 0;
  }

 private:
  std::array<uint8_t, kMaxNameLength + 1> wire_;
  uint8_t size_;
};

// The byte of a label or character-string at `pos` of a text: an escape (\DDD, \X) or a plain character. Advances `pos`; -1:
// a broken escape. REQUIRES: pos < text.size().
int readEscapedByte(std::string_view text, size_t& pos);

// True if `name` is `zone` or below it. REQUIRES: `name` is a valid, uncompressed, lower-case wire name.
bool isNameWithin(std::span<const uint8_t> name, const Name& zone);

// The name without its first label. REQUIRES: as isNameWithin(); not the root.
inline std::span<const uint8_t> parentOf(std::span<const uint8_t> name) { return name.subspan(size_t{name.front()} + 1); }

// Presentation format of the name that starts at `wire`. REQUIRES: valid and uncompressed.
std::string nameToString(const uint8_t* wire);

// The one walk over the labels of a name in wire format (RFC 1035 §3.1, §4.1.4). All that reads names is built of it.
// No I/O, no allocation; any thread.

// Where labels end: at the root label (0), at a compression pointer (0xc0 and more), or, neither, at another type of
// label or outside (`byte` is kNoLabel then, and `pos` is 0).
struct LabelsEnd {
  size_t pos;
  size_t byte;
};
inline constexpr size_t kNoLabel = 0x40;
inline constexpr size_t kPointerLabel = 0xc0;

// From `pos` over whole labels, which end before `limit`. Adds their number to `labels`.
[[gnu::always_inline]] inline LabelsEnd findLabelsEnd(const uint8_t* message, size_t limit, size_t pos,
                                                      size_t& labels) {
  while (pos < limit) {
    const size_t length = message[pos];
    if (length - 1 >= kMaxLabelLength) return {pos, length};  // (a wrapped 0, too)
    pos += length + 1;
    ++labels;
  }
  return {0, kNoLabel};
}

[[gnu::always_inline]] inline LabelsEnd findLabelsEnd(const uint8_t* message, size_t limit, size_t pos) {
  size_t labels = 0;
  return findLabelsEnd(message, limit, pos, labels);
}

// Offset behind the name at `pos` of a message of `size` bytes, or 0: cut short, longer than 255 bytes, or an unknown
// type of label. A pointer is checked, not followed: it must lead to before this name (into the name itself it would be
// a loop) and to behind the header, so there is none in a question.
[[gnu::always_inline]] inline size_t skipName(const uint8_t* message, size_t size, size_t pos) {
  const LabelsEnd end = findLabelsEnd(message, std::min(size, pos + kMaxNameLength), pos);
  if (end.byte == 0) return end.pos + 1;
  if (end.byte < kPointerLabel || size - end.pos < 2) return 0;
  const size_t target = load16(message + end.pos) & 0x3fffu;
  return target >= kHeaderSize && target < pos ? end.pos + 2 : 0;
}

// The bytes of the uncompressed name at the beginning of `wire`, or 0 if it is none.
inline size_t uncompressedNameSize(std::span<const uint8_t> wire) {
  const LabelsEnd end = findLabelsEnd(wire.data(), std::min(wire.size(), kMaxNameLength), 0);
  return end.byte == 0 ? end.pos + 1 : 0;
}

// The name under which an address is looked up: 192.0.2.1 is 1.2.0.192.in-addr.arpa. (RFC 1035 §3.5); of IPv6 each four bits are a label of ip6.arpa. (RFC 3596
// §2.5).
Name reverseName(const IpAddress& address);

// The address whose reverse name this is; none for other names, those of networks among them. REQUIRES: `name` is a
// valid, uncompressed, lower-case wire name.
std::optional<IpAddress> addressOfReverseName(std::span<const uint8_t> name);

struct AddressRange {
  IpAddress first;
  IpAddress last;
};
// The addresses whose reverse names are below this one: of 2.0.192.in-addr.arpa. 192.0.2.0 to 192.0.2.255. None for a name
// that is not above one, and for the two trees themselves. REQUIRES: as addressOfReverseName().
std::optional<AddressRange> addressesBelow(std::span<const uint8_t> name);

}  // namespace idetcd::dns
