#include "dns/name_reader.h"

#include <algorithm>

#include "dns/wire.h"

namespace idetcd::dns {

size_t expandName(std::span<const uint8_t> message, size_t pos, ExpandedName& name) {
  size_t end = 0;        // behind the name in the message, once known
  size_t barrier = pos;  // a pointer must lead to before it
  size_t size = 0;
  while (pos < message.size()) {
    const uint8_t length = message[pos];
    if (length >= 0xc0) {
      if (message.size() - pos < 2) return 0;
      const size_t target = load16(&message[pos]) & 0x3fffu;
      if (target < kHeaderSize || target >= barrier) return 0;
      if (end == 0) end = pos + 2;
      barrier = pos = target;
      continue;
    }
    if (length > kMaxLabelLength || message.size() - pos <= length || size + length + 1 > kMaxNameLength) return 0;
    std::copy_n(&message[pos], length + 1u, &name.wire[size]);
    size += length + 1u;
    pos += length + 1u;
    if (length == 0) {
      name.size = static_cast<uint8_t>(size);
      return end != 0 ? end : pos;
    }
  }
  return 0;
}

bool sameName(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](uint8_t x, uint8_t y) { return toLower(x) == toLower(y); });
}

}  // namespace idetcd::dns
