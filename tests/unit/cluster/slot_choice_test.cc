#include "cluster/slot_choice.h"

#include <gtest/gtest.h>

namespace idetcd::cluster {
namespace {

using Kind = SlotChoice::Kind;

NamePattern pattern(int64_t limit) { return NamePattern::parse("w{{.ID}}.x.", limit).value(); }

Line line(std::unordered_set<std::string> keys, std::optional<size_t> rank) {
  return {.keys = std::move(keys), .rank = rank, .ticket_revision = 1};
}

int64_t take(const SlotChoice& choice) { return choice.kind == Kind::kTake ? choice.id : 0; }

TEST(ChooseSlot, TheRankNamesTheFreeSlot) {
  const NamePattern p = pattern(10);
  EXPECT_EQ(take(chooseSlot(p, 10, line({}, 0), 0)), 1);
  EXPECT_EQ(take(chooseSlot(p, 10, line({}, 3), 0)), 4);
  EXPECT_EQ(take(chooseSlot(p, 10, line({"w1.x.", "w3.x."}, 0), 0)), 2);
  EXPECT_EQ(take(chooseSlot(p, 10, line({"w1.x.", "w3.x."}, 1), 0)), 4);
  EXPECT_EQ(chooseSlot(p, 10, line({"w1.x."}, 0), 0).name, "w2.x.");
}

TEST(ChooseSlot, OnlyNamesOfThePatternTakeSlots) {
  const NamePattern p = pattern(2);
  EXPECT_EQ(take(chooseSlot(p, 2, line({"w01.x.", "w1.x", "w1.xy.", "W1.x.", "w0.x.", "w3.x.", "w.x."}, 0), 0)), 1);
}

TEST(ChooseSlot, FullWhenNothingIsFree) {
  const NamePattern p = pattern(2);
  EXPECT_EQ(chooseSlot(p, 2, line({"w1.x.", "w2.x."}, 0), 0).kind, Kind::kFull);
  EXPECT_EQ(chooseSlot(p, 2, line({"w1.x.", "w2.x."}, 7), 0).kind, Kind::kFull);
  Line far_back = line({"w1.x.", "w2.x."}, std::nullopt);
  far_back.far_back = true;
  EXPECT_EQ(chooseSlot(p, 2, far_back, 0).kind, Kind::kFull);
}

TEST(ChooseSlot, WaitsWhileThoseAheadMayStillDie) {
  const NamePattern p = pattern(2);
  EXPECT_EQ(chooseSlot(p, 2, line({"w1.x."}, 1), 0).kind, Kind::kWait);
  EXPECT_EQ(chooseSlot(p, 2, line({}, 2), 0).kind, Kind::kWait);
  Line far_back = line({}, std::nullopt);
  far_back.far_back = true;
  EXPECT_EQ(chooseSlot(p, 2, far_back, 1).kind, Kind::kWait);
}

TEST(ChooseSlot, WithoutATicketFirstGetOne) {
  const NamePattern p = pattern(2);
  EXPECT_EQ(chooseSlot(p, 2, line({}, std::nullopt), 0).kind, Kind::kUnqueued);
  EXPECT_EQ(chooseSlot(p, 2, line({}, std::nullopt), 1).kind, Kind::kUnqueued);
  EXPECT_EQ(chooseSlot(p, 2, line({"w1.x.", "w2.x."}, std::nullopt), 0).kind, Kind::kUnqueued);
}

TEST(ChooseSlot, ThePreferredSlotIfItIsFree) {
  const NamePattern p = pattern(10);
  EXPECT_EQ(take(chooseSlot(p, 10, line({"w1.x."}, 0), 7)), 7);
  EXPECT_EQ(take(chooseSlot(p, 10, line({"w1.x.", "w7.x."}, 0), 7)), 2);
  EXPECT_EQ(take(chooseSlot(p, 10, line({"w1.x."}, 0), 11)), 2);  // the limit was lowered
}

TEST(ChooseSlot, ThePreferredSlotPastNobodyWhoWaits) {
  const NamePattern p = pattern(3);
  EXPECT_EQ(chooseSlot(p, 3, line({"w1.x.", "w2.x."}, 1), 3).kind, Kind::kWait);
  EXPECT_EQ(take(chooseSlot(p, 3, line({"w1.x."}, 1), 2)), 2);
}

TEST(ChooseSlot, AnOwnKeyIsTakenBackOnlyIfItIsAbandoned) {
  const NamePattern p = pattern(2);
  Line own = line({"w1.x.", "w2.x."}, 5);
  own.own = Line::OwnKey{.lease = 7, .abandoned = true};
  EXPECT_EQ(chooseSlot(p, 2, own, 2).kind, Kind::kTakeBack);
  own.own->abandoned = false;
  EXPECT_EQ(chooseSlot(p, 2, own, 2).kind, Kind::kOldLease);
}

TEST(UnleasedSlots, AreThoseOfThePatternOnly) {
  const NamePattern p = pattern(3);
  Line some = line({"w1.x.", "w2.x.", "w3.x.", "w9.x.", "wx"}, 0);
  some.unleased = {"w2.x.", "w9.x.", "wx", "w3.x."};
  EXPECT_EQ(unleasedSlots(p, 3, some), (std::vector<std::string>{"w2.x.", "w3.x."}));
  EXPECT_EQ(unleasedSlots(p, 2, some), (std::vector<std::string>{"w2.x."}));
}

TEST(ChooseSlot, AHugeLimitCostsNothing) {
  const NamePattern p = pattern(1'000'000'000);
  EXPECT_EQ(take(chooseSlot(p, 1'000'000'000, line({"w1.x."}, 1), 0)), 3);
}

}  // namespace
}  // namespace idetcd::cluster
