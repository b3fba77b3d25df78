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

}  // namespace idetcd
