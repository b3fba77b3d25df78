#include "base/clock.h"

#include <gtest/gtest.h>

namespace idetcd {
namespace {

TEST(BootClock, NeverGoesBack) {
  auto previous = BootClock::now();
  for (int i = 0; i < 10'000; ++i) {
    const auto now = BootClock::now();
    ASSERT_GE(now, previous);
    previous = now;
  }
}

TEST(BootClock, IsTheKernelsBootClock) {
  timespec before;
  clock_gettime(CLOCK_BOOTTIME, &before);
  const auto now = BootClock::now().time_since_epoch();
  timespec after;
  clock_gettime(CLOCK_BOOTTIME, &after);
  const auto nanoseconds = [](const timespec& ts) {
    return std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec);
  };
  EXPECT_LE(nanoseconds(before), now);
  EXPECT_LE(now, nanoseconds(after));
}

}  // namespace
}  // namespace idetcd
