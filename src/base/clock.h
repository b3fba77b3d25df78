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

// The clocks of a machine, for code that runs in virtual time too. Any thread.
class MachineClock {
 public:
  virtual ~MachineClock() = default;

  // As BootClock counts.
  virtual BootClock::time_point now() const = 0;
  // Since 1970. It may be set, forwards and back.
  virtual std::chrono::nanoseconds wallTime() const = 0;
};

// The clocks of the machine that this process runs on.
class SystemClock final : public MachineClock {
 public:
  BootClock::time_point now() const override { return BootClock::now(); }
  std::chrono::nanoseconds wallTime() const override {
    timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec);
  }
};

}  // namespace idetcd
