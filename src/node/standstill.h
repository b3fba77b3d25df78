// Whether this machine stood still unseen by any monotonic clock (paused by its hypervisor, or resumed from a
// snapshot): shown by a jump of CLOCK_REALTIME against CLOCK_BOOTTIME, or by a new VM generation (vm_generation.h). A
// pause that neither shows is not noticed. An operator may set the clock too, so a caller must only have something
// confirmed again. Any thread.
#pragma once

#include "base/clock.h"

namespace idetcd::node {

class Standstill {
 public:
  // A moment before which something was certain.
  struct Mark {
    std::chrono::nanoseconds wall_ahead{0};  // CLOCK_REALTIME less CLOCK_BOOTTIME, at most
    uint64_t generation = 0;

    // Of two things that both must hold.
    static Mark earlier(const Mark& a, const Mark& b) {
      return {std::min(a.wall_ahead, b.wall_ahead), std::min(a.generation, b.generation)};
    }
  };

  // The clocks of this machine; they outlive this.
  explicit Standstill(const MachineClock& clock) : clock_(clock) {}

  Mark mark() const { return {read().most, generation()}; }

  // True: between `mark` and now the machine may have stood still for longer than `tolerance`.
  bool since(const Mark& mark, std::chrono::nanoseconds tolerance) const {
    return generation() != mark.generation || read().least - mark.wall_ahead > tolerance;
  }

  // The machine has a new generation.
  void noteGeneration() { generation_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct WallAhead {
    std::chrono::nanoseconds least;
    std::chrono::nanoseconds most;
  };

  // Between two readings of one clock lies one of the other, so that a pause of this thread does not look like one of
  // the machine.
  WallAhead read() const {
    constexpr std::chrono::nanoseconds kClose = std::chrono::milliseconds(1);
    constexpr int kAttempts = 5;
    WallAhead found{};
    for (int i = 0; i < kAttempts; ++i) {
      const std::chrono::nanoseconds before = clock_.now().time_since_epoch();
      const std::chrono::nanoseconds wall = clock_.wallTime();
      const std::chrono::nanoseconds after = clock_.now().time_since_epoch();
      found = {wall - after, wall - before};
      if (after - before <= kClose) break;
    }
    return found;
  }
  // Relaxed: a number that guards nothing.
  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

  const MachineClock& clock_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace idetcd::node
