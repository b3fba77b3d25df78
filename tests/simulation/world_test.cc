#include "simulation/world.h"

#include <gtest/gtest.h>

namespace idetcd::simulation {
namespace {

// A sanitizer makes a seed ten times as long.
#ifdef IDETCD_SANITIZED
constexpr uint64_t kSeeds = 4;
#else
constexpr uint64_t kSeeds = 20;
#endif

TEST(World, TheSameSeedIsTheSameRunWithAndWithoutATimeline) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RunOptions options{.seed = seed, .trace = true};
    const RunResult first = simulate(options);
    const RunResult second = simulate(options);
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_EQ(first.states, second.states) << "seed " << seed;
    EXPECT_EQ(first.timeline, second.timeline) << "seed " << seed;
    EXPECT_FALSE(first.timeline.empty());
    EXPECT_EQ(first.events, simulate({.seed = seed}).events) << "seed " << seed;
  }
}

TEST(World, HasAsManyNodesAsItIsTold) {
  const RunResult result = simulate({.seed = 7, .nodes = 60});
  EXPECT_EQ(result.nodes, 60u);
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
}

// A store was set back before a node's first snapshot, and the node held the restored ticket, before all that waited.
TEST(World, AQueueOfFiftyGoesOnAfterTheStoreWasSetBack) {
  const RunResult result = simulate({.seed = 425, .nodes = 50});
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
}

// A node that waited was suspended in the middle of a call, then waited half as long before the next, and let its lease end.
TEST(World, ASuspendedNodeKeepsItsPlaceInTheQueue) {
  const RunResult result = simulate({.seed = 1017, .defects = true});
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
}

}  // namespace
}  // namespace idetcd::simulation
