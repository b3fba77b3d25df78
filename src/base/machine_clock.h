// The clocks of a machine, for code that runs in virtual time too. Any thread.
#pragma once

#include <ctime>

#include "base/clock.h"

namespace idetcd {

class MachineClock {
 public:
  virtual ~MachineClock() = default;

  // As BootClock counts.
  virtual BootClock::time_point now() const = 0;
  // Since 1970. It may be set, forwards and back.
  virtual std::chrono::nanoseconds wallTime() const = 0;
};

// Those of the machine that this process runs on.
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
