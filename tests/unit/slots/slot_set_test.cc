#include "slots/slot_choice.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace idetcd::slots {
namespace {

TEST(SlotSet, RunsJoinAndPart) {
  SlotSet set{1, 2, 4};
  EXPECT_EQ(set.size(), 3);
  EXPECT_TRUE(set.insert(3));
  EXPECT_FALSE(set.insert(3));
  EXPECT_EQ(set.lowest(10), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_TRUE(set.erase(2));
  EXPECT_FALSE(set.erase(2));
  EXPECT_FALSE(set.erase(9));
  EXPECT_EQ(set.lowest(2), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(set.lowest(0), std::vector<int64_t>{});
  EXPECT_EQ(set.missing(0), 2);
  EXPECT_EQ(set.missing(1), 5);
  EXPECT_EQ(SlotSet().missing(6), 7);
  EXPECT_EQ(set.missingUpTo(0), 0);
  EXPECT_EQ(SlotSet().missingUpTo(6), 6);
}

TEST(SlotSet, IsASet) {
  std::mt19937 random(1);
  SlotSet set;
  std::set<int64_t> reference;
  for (int i = 0; i < 20'000; ++i) {
    const auto id = static_cast<int64_t>(random() % 60 + 1);
    if (random() % 2 == 0) {
      ASSERT_EQ(set.insert(id), reference.insert(id).second);
    } else {
      ASSERT_EQ(set.erase(id), reference.erase(id) > 0);
    }
    ASSERT_EQ(set.size(), static_cast<int64_t>(reference.size()));
    ASSERT_EQ(set.empty(), reference.empty());
    ASSERT_EQ(set.lowest(100), std::vector<int64_t>(reference.begin(), reference.end()));
    size_t rank = 0;
    for (int64_t each = 1; each <= 62; ++each) {
      ASSERT_EQ(set.contains(each), reference.contains(each));
      if (!reference.contains(each)) {
        ASSERT_EQ(set.missing(rank++), each);
      }
      ASSERT_EQ(set.missingUpTo(each), static_cast<int64_t>(rank));
    }
  }
}

TEST(SlotSet, AMillionInARowAreOneRun) {
  SlotSet set;
  for (int64_t id = 1'000'000; id > 0; --id) set.insert(id);
  EXPECT_EQ(set.size(), 1'000'000);
  EXPECT_EQ(set.missing(0), 1'000'001);
  EXPECT_EQ(set.missing(998'999'999), 1'000'000'000);
}

}  // namespace
}  // namespace idetcd::slots
