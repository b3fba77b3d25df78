// Hashes. That of names is seeded: clients choose the names that a table is asked for, so an unseeded hash would let
// them aim every query at one bucket; the seed is drawn once a process and never leaves it. Any thread.
#pragma once

#include <bit>

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

// SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash of short messages that shows nothing of its key, so that what
// it makes can be handed to others and recognised again. Any thread; no allocation.
using SipHashKey = std::array<uint8_t, 16>;

// The eight bytes in the order in which the reference implementation writes them.
inline std::array<uint8_t, 8> sipHash24(std::span<const uint8_t> message, const SipHashKey& key) {
  static_assert(std::endian::native == std::endian::little);
  const auto load = [](const uint8_t* from, size_t size) {
    uint64_t word = 0;
    if (size > 0) std::memcpy(&word, from, size);  // an empty message may have no address
    return word;
  };
  const uint64_t k0 = load(key.data(), 8);
  const uint64_t k1 = load(key.data() + 8, 8);
  uint64_t v0 = k0 ^ 0x736f6d6570736575;
  uint64_t v1 = k1 ^ 0x646f72616e646f6d;
  uint64_t v2 = k0 ^ 0x6c7967656e657261;
  uint64_t v3 = k1 ^ 0x7465646279746573;
  const auto mix = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto absorb = [&](uint64_t word) {
    v3 ^= word;
    mix(2);
    v0 ^= word;
  };
  const size_t whole = message.size() & ~size_t{7};
  for (size_t i = 0; i < whole; i += 8) absorb(load(&message[i], 8));
  absorb(load(message.data() + whole, message.size() - whole) | uint64_t{message.size()} << 56);
  v2 ^= 0xff;
  mix(4);
  return std::bit_cast<std::array<uint8_t, 8>>(v0 ^ v1 ^ v2 ^ v3);
}

// SHA-512 (FIPS 180-4), as sha512sum(1) prints it: 128 hexadecimal digits in lower case. Any thread.
std::string sha512(std::string_view bytes);

}  // namespace idetcd
