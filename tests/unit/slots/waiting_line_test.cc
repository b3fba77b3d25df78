#include "slots/slot_choice.h"

#include <gtest/gtest.h>

namespace idetcd::slots {
namespace {

class WaitingLineTest : public testing::Test {
 protected:
  // Slots 1 to 3 are taken.
  void look(size_t rank, int64_t revision = 10) {
    waiting_.beginLook();
    waiting_.endLook({.taken = {1, 2, 3}, .older = {{{3, rank}}}, .revision = revision});
  }
  int changes_ = 0;
  WaitingLine waiting_ = withLimit(3);
  WaitingLine withLimit(int64_t limit) {
    return {NamePattern::parse("w{{.ID}}.", limit).value(), [this] { ++changes_; }};
  }
};

TEST_F(WaitingLineTest, OneFreedSlotIsTheTurnOfTheOldest) {
  look(0);
  EXPECT_FALSE(waiting_.isOurTurn());
  waiting_.remove("w2.", 11);
  EXPECT_TRUE(waiting_.isOurTurn());
  EXPECT_EQ(changes_, 1);
  EXPECT_FALSE(waiting_.take().taken.contains(2));

  look(1);
  waiting_.remove("w2.", 11);
  EXPECT_FALSE(waiting_.isOurTurn());
  waiting_.remove("w3.", 12);
  EXPECT_TRUE(waiting_.isOurTurn());
}

// As a rule. It may also be a younger node that takes its name of before past us, so that is looked for.
TEST_F(WaitingLineTest, WhoTakesASlotWasAheadUnlessALookShowsAnother) {
  look(1);
  waiting_.remove("w2.", 11);
  waiting_.put("w2.", 12);
  EXPECT_FALSE(waiting_.isOurTurn());
  EXPECT_FALSE(waiting_.mustLook());
  waiting_.remove("w1.", 13);
  EXPECT_FALSE(waiting_.isOurTurn());
  EXPECT_TRUE(waiting_.mustLook());

  look(1, 13);
  EXPECT_FALSE(waiting_.mustLook());
  waiting_.remove("w1.", 14);
  EXPECT_FALSE(waiting_.isOurTurn());

  look(0, 14);
  waiting_.remove("w1.", 15);
  EXPECT_TRUE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, ASlotThatHasGoneMayBeReserved) {
  waiting_.beginLook();
  waiting_.endLook({.taken = {1, 2, 3}, .older = {{{3, 1}}}, .revision = 10, .reserving = true});
  waiting_.remove("w2.", 11);
  EXPECT_FALSE(waiting_.mustLook()) << "somebody else's turn, in any case";
  waiting_.remove("w3.", 12);
  EXPECT_FALSE(waiting_.isOurTurn());
  EXPECT_TRUE(waiting_.mustLook());

  waiting_.beginLook();
  waiting_.endLook({.taken = {1}, .older = {{{3, 1}}}, .revision = 13, .reserving = true});
  EXPECT_TRUE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, WhatIsReservedForUsIsOurTurn) {
  waiting_.beginLook();
  waiting_.endLook({.taken = {1, 3}, .older = {{{3, 7}}}, .own_reservation = {{.id = 2}}});
  EXPECT_TRUE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, SlotsThatAreFreeAndTakenByThoseAheadCountToo) {
  WaitingLine waiting = withLimit(4);
  waiting.beginLook();
  waiting.endLook({.taken = {1, 2, 3}, .older = {{{4, 1}}}, .revision = 10});
  EXPECT_FALSE(waiting.isOurTurn());
  EXPECT_FALSE(waiting.isFull());
  waiting.put("w4.", 11);
  EXPECT_FALSE(waiting.isOurTurn());
  EXPECT_TRUE(waiting.isFull());
  waiting.remove("w4.", 12);
  EXPECT_TRUE(waiting.mustLook());
}

TEST_F(WaitingLineTest, WhoCannotTakeASlotIsStillAheadWhenItIsTaken) {
  WaitingLine waiting = withLimit(4);
  waiting.beginLook();
  waiting.endLook({.taken = {1, 2, 3, 4}, .older = {{{2, 1}, {4, 1}}}, .revision = 10});
  waiting.remove("w4.", 11);
  EXPECT_FALSE(waiting.isOurTurn());
  waiting.put("w4.", 12);
  waiting.remove("w2.", 13);
  EXPECT_FALSE(waiting.mustLook());
  waiting.remove("w3.", 14);
  EXPECT_TRUE(waiting.mustLook());
}

TEST_F(WaitingLineTest, OtherKeysAndRenewedValuesDoNotMatter) {
  look(0);
  waiting_.remove("db.", 11);
  waiting_.put("db.", 12);
  waiting_.put("w1.", 13);
  waiting_.put("w4.", 14);  // beyond the limit
  waiting_.remove("w4.", 15);
  waiting_.remove("W1.", 16);
  EXPECT_FALSE(waiting_.isOurTurn());
  EXPECT_EQ(changes_, 1);
  waiting_.remove("w1.", 17);
  EXPECT_TRUE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, WhatTheLookKnewDoesNotCountAgainAndWhatItDidNotDoes) {
  waiting_.beginLook();
  waiting_.remove("w1.", 9);
  waiting_.remove("w2.", 11);
  EXPECT_FALSE(waiting_.isOurTurn());
  waiting_.endLook({.taken = {1, 2, 3}, .older = {{}}, .revision = 10});
  EXPECT_TRUE(waiting_.isOurTurn());
  EXPECT_TRUE(waiting_.take().taken.contains(1));

  look(0, 20);
  waiting_.remove("w1.", 19);  // the watch lags behind
  EXPECT_FALSE(waiting_.isOurTurn());
}

TEST_F(WaitingLineTest, ATurnThatALookShowsNeedsNoOther) {
  waiting_.beginLook();
  waiting_.put("w2.", 11);
  waiting_.endLook({.taken = {1}, .older = {{{3, 1}}}, .revision = 10});
  EXPECT_TRUE(waiting_.isOurTurn());
  EXPECT_FALSE(waiting_.mustLook());
}

TEST_F(WaitingLineTest, TooMuchAtOnceNeedsAnotherLook) {
  waiting_.beginLook();
  for (int64_t i = 0; i < 10'001; ++i) waiting_.put("x.", 20 + i);
  EXPECT_FALSE(waiting_.mustLook());  // those are strangers
  for (int64_t i = 0; i < 10'001; ++i) waiting_.put("w1.", 20 + i);
  EXPECT_TRUE(waiting_.mustLook());
  look(0);
  EXPECT_FALSE(waiting_.mustLook());
  waiting_.lookAgain();
  EXPECT_TRUE(waiting_.mustLook());
}

TEST_F(WaitingLineTest, AHugeLimitIsNeitherFullNorSlow) {
  WaitingLine waiting = withLimit(1'000'000'000);
  waiting.beginLook();
  waiting.endLook({.taken = {1}, .older = {{{1'000'000'000, 999'999'999}}}, .revision = 10});
  EXPECT_FALSE(waiting.isFull());
  EXPECT_FALSE(waiting.isOurTurn());
  waiting.remove("w1.", 11);
  EXPECT_TRUE(waiting.isOurTurn());
}

}  // namespace
}  // namespace idetcd::slots
