#include "simulation/world.h"

#include <array>

#include <gtest/gtest.h>

namespace idetcd::simulation {
namespace {

// A sanitizer makes a seed ten times as long.
#ifdef IDETCD_SANITIZED
constexpr uint64_t kSeeds = 2;
constexpr std::array<uint64_t, 1> kSeedsOfFifty{714};
constexpr size_t kCrowd = 110;
constexpr size_t kMostBehindAMember = 1250;
#else
constexpr uint64_t kSeeds = 20;
constexpr std::array<uint64_t, 6> kSeedsOfFifty{336, 425, 714, 2003, 2013, 3101};
constexpr size_t kCrowd = 300;
constexpr size_t kMostBehindAMember = 1800;
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

// 336: a clock is set back after a standstill that was noticed. 425: a store is set back before a node's first snapshot,
// which holds the restored ticket, before all that wait. 714: a claim comes after it was read back, of one of two processes
// with one UUID. 2003: a claim comes after its lease's revocation was sent. 2013: a store is set back just before a watch is
// opened again. 3101: a younger node takes its name of before past nodes that wait, and is taken for one of these.
TEST(World, FiftyNodesGetOverWhatFewDoNotMeet) {
  for (const uint64_t seed : kSeedsOfFifty) {
    const RunResult result = simulate({.seed = seed, .nodes = 50});
    EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
  }
}

// A node that waited was suspended in the middle of a call, then waited half as long before the next, and let its lease end.
TEST(World, ASuspendedNodeKeepsItsPlaceInTheQueue) {
  const RunResult result = simulate({.seed = 1017, .defects = true});
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
}

// A comparison reads values from a member that answers with what was there before the watch showed the end of a name.
TEST(World, ValuesThatAreOlderThanWhatWasSeenAreThrownAway) {
  const RunResult result = simulate({.seed = 2182, .defects = true});
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
}

TEST(World, ManyThatStartAtOnceAreNotSentEachNameAsAnEvent) {
  const RunResult result = simulate({.nodes = kCrowd, .cost = true});
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
  const size_t events = result.cost.find("\nevents ");
  ASSERT_NE(events, std::string::npos) << result.cost;
  EXPECT_LT(std::stoul(result.cost.substr(events + sizeof "\nevents")), kCrowd * 40) << result.cost;
}

// Behind a broken watch, nodes read what the newest name says. What had been left out of it, as nodes are only counted, was
// taken for a change: half as many requests again.
TEST(World, TheEndOfAMemberMakesNobodyReadAllNames) {
  const RunResult result = simulate({.nodes = kCrowd, .cost = true});
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
  constexpr std::string_view kDead = "from the end of one member: ";
  const size_t dead = result.cost.find(kDead);
  ASSERT_NE(dead, std::string::npos) << result.cost;
  EXPECT_LT(std::stoul(result.cost.substr(dead + kDead.size())), kMostBehindAMember) << result.cost;
}

// A relay had passed on names that did not say whose they are: what is left out where nodes are only counted.
TEST(World, NamesThatComeFromARelayCostNobodyAName) {
  const RunResult result = simulate({.nodes = 120, .cost = true, .relay = 30});
  EXPECT_FALSE(result.violation) << result.violation->property << ": " << result.violation->text;
  const size_t revocations = result.cost.find("\nrevocations ");
  ASSERT_NE(revocations, std::string::npos) << result.cost;
  EXPECT_EQ(std::stoul(result.cost.substr(revocations + sizeof "\nrevocations")), 0u) << result.cost;
}

}  // namespace
}  // namespace idetcd::simulation
