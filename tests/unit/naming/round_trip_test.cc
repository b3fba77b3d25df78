#include "naming/context.h"

#include <gtest/gtest.h>

#include "support/captured_stdout.h"

namespace idetcd::naming {
namespace {

using namespace std::chrono_literals;

TEST(RoundTrip, TheSetUpOfAConnectionIsNoSlowEtcd) {
  const auto logged = captured([] {
    RoundTrip round_trip(4s, Logger::toStdout());
    BootClock::time_point now;
    round_trip.took(now, now + 1200ms);         // with the connection
    round_trip.took(now + 100ms, now + 1200ms);  // which this one has waited for too
    for (int i = 2; i < 9; ++i) round_trip.took(now + i * 1s, now + i * 1s + 600ms);
    round_trip.took(now + 9s, now + 9s + 1200ms);
    round_trip.took(now + 11s, now + 11s + 600ms);
  });
  EXPECT_EQ(logged, "");
}

TEST(RoundTrip, AnEtcdThatIsSlowIsSaidToBeOnce) {
  const auto logged = captured([] {
    RoundTrip round_trip(4s, Logger::toStdout());
    BootClock::time_point now;
    for (int i = 0; i < 9; ++i) round_trip.took(now + i * 2s, now + i * 2s + 1200ms);
  });
  EXPECT_EQ(logged, "[WARNING] etcd takes 1.2 s to answer: a lease of 4 s is too short for that, and this node may own no "
                    "name; it should be 8 s or more\n");
}

}  // namespace
}  // namespace idetcd::naming
