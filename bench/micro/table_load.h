// Keys for the tables of record_tables.h: those that fill them, and those that are looked up.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "common/names.h"
#include "common/random.h"
#include "micro/record_tables.h"

namespace idetcd::bench {

inline constexpr size_t kProbes = size_t{1} << 20;  // a power of two

inline Key keyOf(uint32_t number) {
  Key key{};
  key.size = static_cast<uint8_t>(writeNumberedName(number, key.bytes.data()));
  return key;
}

// The numbers 1 … names in an order that is no order.
inline std::vector<uint32_t> shuffled(uint32_t names) {
  std::vector<uint32_t> numbers(names);
  std::iota(numbers.begin(), numbers.end(), 1);
  Random random;
  for (uint32_t i = names; i > 1; --i) std::swap(numbers[i - 1], numbers[random.below(i)]);
  return numbers;
}

// The keys to look up: names that are there, or the names of as many numbers further up.
inline std::vector<Key> probes(uint32_t names, bool hits) {
  std::vector<Key> keys(kProbes);
  Random random(7);
  for (Key& key : keys) key = keyOf(1 + random.below(names) + (hits ? 0 : names));
  return keys;
}

template <typename Table>
void fill(Table& table, uint32_t names) {
  for (const uint32_t number : shuffled(names)) table.put(keyOf(number), addressV4(number));
}

}  // namespace idetcd::bench
