#include "simulation/world.h"

#include <gtest/gtest.h>

namespace idetcd::simulation {
namespace {

TEST(World, TheSameSeedIsTheSameRun) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const RunOptions options{.seed = seed, .trace = true};
    const RunResult first = simulate(options);
    const RunResult second = simulate(options);
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_EQ(first.states, second.states) << "seed " << seed;
    EXPECT_EQ(first.timeline, second.timeline) << "seed " << seed;
    EXPECT_FALSE(first.timeline.empty());
  }
}

TEST(World, ItsTimelineChangesNothing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(simulate({.seed = seed, .trace = true}).events, simulate({.seed = seed}).events) << "seed " << seed;
  }
}

TEST(World, HasAsManyNodesAsItIsTold) {
  const RunResult result = simulate({.seed = 7, .nodes = 60});
  EXPECT_EQ(result.nodes, 60u);
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
}

}  // namespace
}  // namespace idetcd::simulation
