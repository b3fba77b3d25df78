// Measuring two things in turn, in slices so short that whatever else the machine does meets both: which one comes
// first in each pair, and when to stop. The driver reads a line a pair and says when it has seen enough
// (driver/pairs.py).
#pragma once

#include <csignal>
#include <cstdint>

#include "common/random.h"

namespace idetcd::bench {

// One thread; one object a process.
class Pairs {
 public:
  // At most so many pairs. SIGTERM and SIGINT end the measuring after the pair that is under way, from now on.
  explicit Pairs(uint32_t most) : most_(most) {
    struct sigaction action {};
    action.sa_handler = [](int) { stop() = 1; };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
  }

  // Begins the next pair, if there is to be one.
  bool next() {
    if (done_ == most_ || stop() != 0) return false;
    // By chance, and in the next pair the other way: neither a drift nor something periodic favours one of the two.
    reference_first_ = done_ % 2 == 0 ? random_.below(2) == 0 : !reference_first_;
    ++done_;
    return true;
  }
  bool referenceFirst() const { return reference_first_; }

 private:
  static volatile std::sig_atomic_t& stop() {
    static volatile std::sig_atomic_t flag = 0;
    return flag;
  }

  const uint32_t most_;
  uint32_t done_ = 0;
  bool reference_first_ = false;
  Random random_;
};

}  // namespace idetcd::bench
