// When a revision came about, as far as it was seen.
#include "naming/revision_times.h"

#include <gtest/gtest.h>

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;

BootClock::time_point at(std::chrono::nanoseconds since) { return BootClock::time_point() + 1h + since; }

TEST(RevisionTimes, SayNothingOfWhatWasThereBefore) {
  RevisionTimes times;
  EXPECT_FALSE(times.timeOf(1));
  times.saw(10, at(0s));
  EXPECT_FALSE(times.timeOf(9));
  EXPECT_FALSE(times.timeOf(10));
  EXPECT_FALSE(times.timeOf(11));
}

TEST(RevisionTimes, ARevisionCameWithTheFirstOneThatIsNotBelowIt) {
  RevisionTimes times;
  times.saw(10, at(0s));
  times.saw(12, at(5s));
  times.saw(20, at(9s));
  EXPECT_EQ(times.timeOf(11), at(5s));
  EXPECT_EQ(times.timeOf(12), at(5s));
  EXPECT_EQ(times.timeOf(13), at(9s));
  EXPECT_FALSE(times.timeOf(21));
  times.saw(15, at(11s));  // late
  EXPECT_EQ(times.timeOf(15), at(9s));
}

TEST(RevisionTimes, WhatComesTogetherIsOneMoment) {
  RevisionTimes times;
  times.saw(10, at(0s));
  times.saw(11, at(1s));
  times.saw(12, at(1s + RevisionTimes::kResolution / 2));
  EXPECT_EQ(times.timeOf(12), at(1s));
  times.saw(13, at(1s + RevisionTimes::kResolution));
  EXPECT_EQ(times.timeOf(13), at(1s + RevisionTimes::kResolution));
}

TEST(RevisionTimes, OfManyTheOldOnesAreLessExact) {
  RevisionTimes times;
  constexpr int64_t kMany = 3 * RevisionTimes::kMost;
  for (int64_t i = 0; i <= kMany; ++i) times.saw(i, at(i * 1s));
  EXPECT_FALSE(times.timeOf(0));
  EXPECT_EQ(times.timeOf(kMany), at(kMany * 1s));
  EXPECT_EQ(times.timeOf(kMany - 1), at((kMany - 1) * 1s));
  for (int64_t i = 1; i <= kMany; i += 97) {
    const auto when = times.timeOf(i);
    ASSERT_TRUE(when);
    EXPECT_GE(*when, at(i * 1s));
    EXPECT_LE(*when, at((i + kMany / 2) * 1s));
  }
}

TEST(RevisionTimes, AnotherStoreBeginsAnew) {
  RevisionTimes times;
  times.saw(10, at(0s));
  times.saw(12, at(5s));
  times.clear();
  EXPECT_FALSE(times.timeOf(12));
  times.saw(3, at(6s));
  times.saw(4, at(7s));
  EXPECT_EQ(times.timeOf(4), at(7s));
}

}  // namespace
}  // namespace idetcd::naming
