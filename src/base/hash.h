// Seeded 64-bit hashing of names. Clients choose the names that a table is asked for, so an unseeded hash would let
// them aim every query at one bucket; the seed is drawn once a process and never leaves it. Any thread.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/std.h"

namespace idetcd {

using HashSeed = uint64_t;

// From the kernel's random generator.
HashSeed randomHashSeed();

inline uint64_t hashBytes(const void* data, size_t size, HashSeed seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

}  // namespace idetcd
