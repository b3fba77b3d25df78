// Domain names in wire format (RFC 1035 §3.1): length-prefixed labels, the root label last, at most 255 bytes.
// Any thread; no allocation except in toString().
#pragma once

#include "base/result.h"

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

// True if `name` is `zone` or below it. REQUIRES: `name` is a valid, uncompressed, lower-case wire name.
bool isNameWithin(std::span<const uint8_t> name, const Name& zone);

// Presentation format of the name that starts at `wire`. REQUIRES: valid and uncompressed.
std::string nameToString(const uint8_t* wire);

}  // namespace idetcd::dns
