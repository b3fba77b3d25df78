// Random delays, so that nodes that fail together do not come back together. Not thread-safe.
#pragma once

#include <random>

#include "base/random.h"

namespace idetcd::naming {

// Good enough for jitter, and for nothing else.
class Jitter {
 public:
  explicit Jitter(RandomSource& random) : engine_(random.next()) {}

  // Between (1 - spread) and (1 + spread) times `mean`.
  std::chrono::nanoseconds around(std::chrono::nanoseconds mean, double spread) {
    std::uniform_real_distribution<double> factor(1.0 - spread, 1.0 + spread);
    return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(mean.count()) * factor(engine_)));
  }

 private:
  std::mt19937_64 engine_;
};

// Exponential back-off: each delay is twice the one before up to `max`, and jittered by a half.
class Backoff {
 public:
  Backoff(Jitter& jitter, std::chrono::nanoseconds min, std::chrono::nanoseconds max)
      : jitter_(jitter), min_(min), max_(max), mean_(min) {}

  std::chrono::nanoseconds next() {
    const std::chrono::nanoseconds mean = mean_;
    mean_ = std::min(mean_ * 2, max_);
    return jitter_.around(mean, 0.5);
  }
  void reset() { mean_ = min_; }

 private:
  Jitter& jitter_;
  const std::chrono::nanoseconds min_;
  const std::chrono::nanoseconds max_;
  std::chrono::nanoseconds mean_;
};

}  // namespace idetcd::naming
