#include "resolver/upstream_server.h"

#include <gtest/gtest.h>

namespace idetcd::resolver {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RoundTripTest : public testing::Test {
 protected:
  void samples(int count, milliseconds time) {
    for (int i = 0; i < count; ++i) trip_.sample(time, now_);
  }

  RoundTrip trip_;
  BootClock::time_point now_{seconds(1000)};
};

// The figures follow from RFC 6298 §2.2 and §2.3.
TEST_F(RoundTripTest, TheEstimatorIsThatOfRfc6298) {
  EXPECT_EQ(trip_.timeout(), RoundTrip::kInitialTimeout);
  trip_.sample(milliseconds(100), now_);
  EXPECT_EQ(trip_.expected(now_), milliseconds(100));
  EXPECT_EQ(trip_.timeout(), milliseconds(100 + 4 * 50));
  trip_.sample(milliseconds(180), now_);
  EXPECT_EQ(trip_.expected(now_), milliseconds(110));                                    // 7/8 * 100 + 1/8 * 180
  EXPECT_EQ(trip_.timeout(), milliseconds(110) + 4 * std::chrono::microseconds(57500));  // 3/4 * 50 + 1/4 * 80
}

TEST_F(RoundTripTest, TheTimeoutHasBounds) {
  samples(50, milliseconds(1));
  EXPECT_EQ(trip_.timeout(), RoundTrip::kMinTimeout);
  samples(50, milliseconds(4000));
  EXPECT_EQ(trip_.timeout(), RoundTrip::kMaxTimeout);
}

TEST_F(RoundTripTest, SilenceDoublesTheTimeoutUntilAnAnswerComes) {
  samples(50, milliseconds(1));
  trip_.backOff(now_);
  EXPECT_EQ(trip_.timeout(), milliseconds(100));
  trip_.backOff(now_ + milliseconds(99));
  EXPECT_EQ(trip_.timeout(), milliseconds(100)) << "what is lost together counts once";
  trip_.backOff(now_ + milliseconds(100));
  EXPECT_EQ(trip_.timeout(), milliseconds(200));
  for (int i = 0; i < 100; ++i) trip_.backOff(now_ += seconds(3));
  EXPECT_EQ(trip_.timeout(), RoundTrip::kMaxTimeout);
  trip_.sample(milliseconds(1), now_);
  EXPECT_EQ(trip_.timeout(), RoundTrip::kMinTimeout);
}

TEST_F(RoundTripTest, WhatToExpectFadesWithItsAge) {
  EXPECT_EQ(trip_.expected(now_), RoundTrip::Time(0));
  samples(50, milliseconds(200));
  EXPECT_EQ(trip_.expected(now_), milliseconds(200));
  EXPECT_EQ(trip_.expected(now_ + seconds(30)), milliseconds(100));
  EXPECT_EQ(trip_.expected(now_ + seconds(60)), milliseconds(50));
  EXPECT_EQ(trip_.expected(now_ + std::chrono::hours(1000)), RoundTrip::Time(0));
}

}  // namespace
}  // namespace idetcd::resolver
