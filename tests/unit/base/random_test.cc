#include "base/random.h"

#include <set>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

TEST(KernelRandom, NoNumberComesTwiceAndNoBitStandsStill) {
  KernelRandom random;
  std::set<uint64_t> seen;
  uint64_t ever_set = 0;
  uint64_t ever_clear = 0;
  for (int i = 0; i < 200; ++i) {
    const uint64_t bits = random.next();
    EXPECT_TRUE(seen.insert(bits).second);
    ever_set |= bits;
    ever_clear |= ~bits;
  }
  EXPECT_EQ(ever_set, ~uint64_t{0});
  EXPECT_EQ(ever_clear, ~uint64_t{0});
}

}  // namespace
}  // namespace idetcd
