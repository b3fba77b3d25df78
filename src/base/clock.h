// Clocks. All durations and instants are nanoseconds unless a name says otherwise. Any thread.
#pragma once

#include <ctime>

#include "base/std.h"

namespace idetcd {

// CLOCK_BOOTTIME: monotonic, and unlike CLOCK_MONOTONIC it goes on while the machine is suspended. Everything that must
// agree with a lease that etcd counts down (ownership, staleness) is measured with it; a step of the wall clock is not
// seen.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return time_point(std::chrono::seconds(ts.tv_sec) + duration(ts.tv_nsec));
  }
};

}  // namespace idetcd
