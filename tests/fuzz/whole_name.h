// What a name in wire form is, said once more in the simplest way, apart from the code under test.
#pragma once

#include <cstdint>
#include <span>

#include "dns/name.h"

namespace idetcd::fuzz {

// The bytes of `wire` are one whole name.
inline bool isWhole(std::span<const uint8_t> wire) {
  size_t pos = 0;
  while (pos < wire.size() && wire[pos] != 0) {
    if (wire[pos] > dns::kMaxLabelLength) return false;
    pos += wire[pos] + 1u;
  }
  return pos + 1 == wire.size() && wire.size() <= dns::kMaxNameLength;
}

}  // namespace idetcd::fuzz
