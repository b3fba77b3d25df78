#include "simulation/timeline.h"

#include <string>

#include <gtest/gtest.h>

namespace idetcd::simulation {
namespace {

TEST(Timeline, OfCallsInARowThatFoundNobodyThereIsOneLine) {
  const VirtualTime time;
  Timeline timeline(time, true);
  timeline.say(0, "begins");
  for (int call = 1; call <= 3; ++call) timeline.say(0, "#{} to member 1: read a", call);
  timeline.say(1, "goes on");
  for (int call = 1; call <= 3; ++call) timeline.say(0, "#{} answered: {}", call, Timeline::kUnconnected);
  timeline.say(0, "#4 to member 1: read b");
  timeline.say(0, "#4 answered: done");
  timeline.say(0, "#5 answered: {}", Timeline::kUnconnected);
  const std::string when = "      0.000000  ";
  EXPECT_EQ(timeline.render({0}, 100), when + "node 0    begins\n" + when + "node 0    2 more calls as the next\n" +
                                           when + "node 0    #3 answered: failed to connect to all addresses\n" + when +
                                           "node 0    #4 to member 1: read b\n" + when +
                                           "node 0    #4 answered: done\n" + when +
                                           "node 0    #5 answered: failed to connect to all addresses\n");
}

TEST(Timeline, KeepsNothingThatNobodyReads) {
  const VirtualTime time;
  Timeline timeline(time, false);
  timeline.say(0, "begins");
  EXPECT_EQ(timeline.render({}, 100), "");
}

}  // namespace
}  // namespace idetcd::simulation
