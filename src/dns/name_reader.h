// Names in messages from elsewhere, where compression pointers occur (RFC 1035 §4.1.4). No I/O, no allocation; any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dns/name.h"

namespace idetcd::dns {

// An expanded name, in the case in which it came.
struct ExpandedName {
  std::array<uint8_t, kMaxNameLength> wire;
  uint8_t size = 0;
  std::span<const uint8_t> span() const { return {wire.data(), size}; }
};

// Expands the name at `pos`. Returns the offset behind it in the message, or 0 if it is none: cut short, longer than
// 255 octets, an unknown label type, or a pointer that does not lead backwards to behind the header. Bounded work:
// every pointer must lead to before the place where the name, or the last jump, began.
size_t expandName(std::span<const uint8_t> message, size_t pos, ExpandedName& name);

// Octet equality but for ASCII case.
bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b);

}  // namespace idetcd::dns
