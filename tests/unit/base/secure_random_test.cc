#include "base/random.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

TEST(SecureRandomTest, NumbersAreSpread) {
  SecureRandom random;
  std::set<uint16_t> seen;
  for (int i = 0; i < 10000; ++i) seen.insert(random.next16());
  // 65,536 × (1 − e^(−10,000/65,536)) = 9,273 are expected, with a deviation of about 25.
  EXPECT_GT(seen.size(), 9000u);
  EXPECT_LT(seen.size(), 9550u);
}

TEST(SecureRandomTest, BelowIsUniformAndBounded) {
  SecureRandom random;
  std::array<int, 3> counts{};
  for (int i = 0; i < 30000; ++i) ++counts.at(random.below(3));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 600);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.below(1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.below(0xffffffff), 0xffffffffu);
}

}  // namespace
}  // namespace idetcd
