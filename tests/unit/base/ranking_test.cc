#include "base/ranking.h"

#include <gtest/gtest.h>

namespace idetcd {
namespace {

struct Holder {
  size_t held = 0;
  ListLink<Holder> link;
};

class RankingTest : public ::testing::Test {
 protected:
  void riseTo(Holder& holder, size_t held) {
    while (holder.held < held) ranking_.rise(holder);
  }
  Ranking<Holder, &Holder::held, &Holder::link> ranking_;
  Holder a_, b_, c_;
};

TEST_F(RankingTest, NobodyHoldsAnything) {
  EXPECT_EQ(ranking_.largest(), nullptr);
  EXPECT_EQ(ranking_.toGiveWay(0), nullptr);
}

TEST_F(RankingTest, TheLargestIsTheOneThatHasHadSoManyLongest) {
  riseTo(a_, 1);
  riseTo(b_, 3);
  riseTo(c_, 3);
  EXPECT_EQ(ranking_.largest(), &b_);
  ranking_.fall(b_);
  EXPECT_EQ(ranking_.largest(), &c_);
  ranking_.rise(b_);
  EXPECT_EQ(ranking_.largest(), &c_);
}

TEST_F(RankingTest, OneWithTwoMoreGivesWay) {
  riseTo(a_, 3);
  EXPECT_EQ(ranking_.toGiveWay(1), &a_);
  EXPECT_EQ(ranking_.toGiveWay(2), nullptr);
}

TEST_F(RankingTest, WhoHoldsNothingHasLeft) {
  riseTo(a_, 2);
  ranking_.fall(a_);
  ranking_.fall(a_);
  EXPECT_EQ(ranking_.largest(), nullptr);
}

}  // namespace
}  // namespace idetcd
