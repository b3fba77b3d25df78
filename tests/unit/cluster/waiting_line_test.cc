#include "cluster/waiting_line.h"

#include <gtest/gtest.h>

namespace idetcd::cluster {
namespace {

class WaitingLineTest : public testing::Test {
 protected:
  void look(size_t rank, int64_t revision = 10, std::unordered_set<std::string> free_slots = {}) {
    waiting_.beginLook();
    waiting_.endLook({.keys = {"w1.", "w2.", "w3."}, .rank = rank, .revision = revision}, std::move(free_slots));
  }
  int changes_ = 0;
  WaitingLine waiting_{[this] { ++changes_; }};
};

TEST_F(WaitingLineTest, OneFreedSlotIsTheTurnOfTheOldest) {
  look(0);
  EXPECT_FALSE(waiting_.isOurTurn());
  waiting_.remove("w2.", 11);
  EXPECT_TRUE(waiting_.isOurTurn());
  EXPECT_EQ(changes_, 1);
  EXPECT_FALSE(waiting_.take().keys.contains("w2."));

  look(1);
  waiting_.remove("w2.", 11);
  EXPECT_FALSE(waiting_.isOurTurn());
  waiting_.remove("w3.", 12);
  EXPECT_TRUE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, WhoTakesASlotWasAhead) {
  look(1);
  waiting_.remove("w2.", 11);
  waiting_.put("w2.", 12);
  EXPECT_FALSE(waiting_.isOurTurn());
  waiting_.remove("w1.", 13);
  EXPECT_TRUE(waiting_.isOurTurn());
  EXPECT_EQ(waiting_.take().rank, 0u);
}

TEST_F(WaitingLineTest, SlotsThatAreFreeAndTakenByThoseAheadCountToo) {
  look(1, 10, {"w4."});
  EXPECT_FALSE(waiting_.isOurTurn());
  EXPECT_FALSE(waiting_.isFull());
  waiting_.put("w4.", 11);
  EXPECT_FALSE(waiting_.isOurTurn());
  EXPECT_TRUE(waiting_.isFull());
  waiting_.remove("w4.", 12);
  EXPECT_TRUE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, OtherKeysAndRenewedValuesDoNotMatter) {
  look(0);
  waiting_.remove("db.", 11);
  waiting_.put("db.", 12);
  waiting_.put("w1.", 13);
  EXPECT_FALSE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, WhatTheLookKnewDoesNotCountAgainAndWhatItDidNotDoes) {
  waiting_.beginLook();
  waiting_.remove("w1.", 9);
  waiting_.remove("w2.", 11);
  EXPECT_FALSE(waiting_.isOurTurn());
  waiting_.endLook({.keys = {"w1.", "w2."}, .rank = 0, .revision = 10}, {});
  EXPECT_TRUE(waiting_.isOurTurn());
  EXPECT_TRUE(waiting_.take().keys.contains("w1."));

  look(0, 20);
  waiting_.remove("w1.", 19);  // the watch lags behind
  EXPECT_FALSE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, TooMuchAtOnceNeedsAnotherLook) {
  waiting_.beginLook();
  for (int64_t i = 0; i < 10'001; ++i) waiting_.put("x.", 20 + i);
  EXPECT_TRUE(waiting_.mustLook());
  look(0);
  EXPECT_FALSE(waiting_.mustLook());
  waiting_.lookAgain();
  EXPECT_TRUE(waiting_.mustLook());
}

}  // namespace
}  // namespace idetcd::cluster
