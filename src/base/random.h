// Where random numbers come from: the kernel, or, in a simulation, a seed.
#pragma once

#include "base/std.h"

namespace idetcd {

class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual uint64_t next() = 0;  // 64 random bits
};

// getrandom(2), fit for identities. Any thread. Aborts without randomness: a duplicate identity would be worse.
class KernelRandom final : public RandomSource {
 public:
  uint64_t next() override;
};

// Unpredictable random numbers (RFC 4086), from the kernel's generator, drawn in batches: a system call for some
// hundred numbers. One thread. Aborts if the kernel has no randomness to give: there is no safe way to go on.
class SecureRandom {
 public:
  SecureRandom() = default;
  ~SecureRandom();
  SecureRandom(const SecureRandom&) = delete;
  SecureRandom& operator=(const SecureRandom&) = delete;

  uint16_t next16() { return static_cast<uint16_t>(take(2)); }
  // Uniform in [0, bound). REQUIRES: bound > 0.
  uint32_t below(uint32_t bound);

 private:
  uint32_t take(size_t bytes);

  std::array<uint8_t, 1024> pool_{};
  size_t used_ = sizeof(pool_);
};

}  // namespace idetcd
