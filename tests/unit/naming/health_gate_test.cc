#include "naming/health_gate.h"

#include <gtest/gtest.h>

namespace idetcd::naming {
namespace {

// `in` and `drained` nodes hold names and have no ticket.
std::vector<SeenNode> holders(size_t in, size_t drained, const std::vector<std::string>& sick = {}) {
  std::vector<SeenNode> made;
  for (size_t i = 0; i < in; ++i) made.push_back({fmt::format("in{}", i), false});
  for (size_t i = 0; i < drained; ++i) made.push_back({fmt::format("drained{}", i), true});
  for (const std::string& uuid : sick) made.push_back({uuid, false});
  return made;
}

TEST(HealthGate, TheShareOfAllStaysIn) {
  EXPECT_TRUE(mayBeOut(holders(3, 0, {"own"}), {"own"}, 50));
  EXPECT_TRUE(mayBeOut(holders(2, 0, {"a", "own"}), {"a", "own"}, 50));
  EXPECT_FALSE(mayBeOut(holders(1, 0, {"a", "b", "own"}), {"a", "b", "own"}, 50));
  EXPECT_FALSE(mayBeOut(holders(1, 1, {"a", "own"}), {"a", "own"}, 50)) << "an operator's drain counts";
  EXPECT_FALSE(mayBeOut(holders(1, 0, {"a", "own"}), {"a", "own"}, 50)) << "half of three are two";
}

TEST(HealthGate, TheOnlyNodeStays) {
  EXPECT_FALSE(mayBeOut(holders(0, 0, {"own"}), {"own"}, 1));
  EXPECT_TRUE(mayBeOut(holders(0, 0, {"own"}), {"own"}, 0));
  EXPECT_FALSE(mayBeOut(holders(9, 0, {"own"}), {"own"}, 100));
}

TEST(HealthGate, ThoseThatAreOutWithoutANameCount) {
  EXPECT_FALSE(mayBeOut(holders(2, 0, {"own"}), {"a", "b", "own"}, 50));
  EXPECT_TRUE(mayBeOut(holders(3, 0, {"own"}), {"a", "b", "own"}, 50));
  std::vector<SeenNode> plugins(3);  // have no UUID
  plugins.push_back({"own", false});
  EXPECT_TRUE(mayBeOut(plugins, {"own"}, 75));
  EXPECT_FALSE(mayBeOut(plugins, {"own"}, 76));
}

}  // namespace
}  // namespace idetcd::naming
