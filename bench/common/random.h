// A small fast generator (xorshift64*), the same sequence in every run: benches repeat. One thread.
#pragma once

#include <cstdint>

namespace idetcd::bench {

class Random {
 public:
  explicit Random(uint64_t seed = 0x9e3779b97f4a7c15u) : state_(seed) {}

  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  // Uniform in [0, bound), bound < 2^32.
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_;
};

}  // namespace idetcd::bench
