// Choices that a seed makes. The same on every machine: no distribution of the standard library, which are not.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace idetcd::simulation {

// SplitMix64 (Steele, Lea and Flood, 2014): small enough that each process has one.
class Random final : public RandomSource {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() override {
    uint64_t mixed = (state_ += 0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }

  // From 0 to bound - 1. REQUIRES: bound > 0.
  size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }
  // Between the two, both included.
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(next() % static_cast<uint64_t>(most - least + 1));
  }
  std::chrono::nanoseconds between(std::chrono::nanoseconds least, std::chrono::nanoseconds most) {
    return std::chrono::nanoseconds(between(least.count(), most.count()));
  }
  // True so many times in a thousand.
  bool chance(size_t in_a_thousand) { return below(1000) < in_a_thousand; }
  template <typename T>
  const T& oneOf(const std::vector<T>& things) {
    return things[below(things.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace idetcd::simulation
