#include "slots/slot_choice.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::slots {
namespace {

using Kind = SlotChoice::Kind;

NamePattern pattern(int64_t limit) { return NamePattern::parse("w{{.ID}}.x.", limit).value(); }

using Tickets = std::vector<QueueSnapshot::Tickets>;

QueueSnapshot line(SlotSet taken, std::optional<Tickets> older) {
  return {.taken = std::move(taken), .older = std::move(older), .ticket_revision = 1};
}
// So many older tickets, all of nodes without a limit.
QueueSnapshot line(SlotSet taken, size_t rank) { return line(std::move(taken), Tickets{{INT64_MAX / 2, rank}}); }

int64_t take(const SlotChoice& choice) { return choice.kind == Kind::kTake ? choice.id : 0; }

TEST(ChooseSlot, TheRankNamesTheFreeSlot) {
  const NamePattern p = pattern(10);
  EXPECT_EQ(take(chooseSlot(p, line({}, 0), 0)), 1);
  EXPECT_EQ(take(chooseSlot(p, line({}, 3), 0)), 4);
  EXPECT_EQ(take(chooseSlot(p, line({1, 3}, 0), 0)), 2);
  EXPECT_EQ(take(chooseSlot(p, line({1, 3}, 1), 0)), 4);
  EXPECT_EQ(chooseSlot(p, line({1}, 0), 0).name, "w2.x.");
}

TEST(ChooseSlot, FullWhenNothingIsFree) {
  const NamePattern p = pattern(2);
  EXPECT_EQ(chooseSlot(p, line({1, 2}, 0), 0).kind, Kind::kFull);
  EXPECT_EQ(chooseSlot(p, line({1, 2}, 7), 0).kind, Kind::kFull);
  QueueSnapshot far_back = line({1, 2}, std::nullopt);
  far_back.far_back = true;
  EXPECT_EQ(chooseSlot(p, far_back, 0).kind, Kind::kFull);
}

TEST(ChooseSlot, WaitsWhileThoseAheadMayStillDie) {
  const NamePattern p = pattern(2);
  EXPECT_EQ(chooseSlot(p, line({1}, 1), 0).kind, Kind::kWait);
  EXPECT_EQ(chooseSlot(p, line({}, 2), 0).kind, Kind::kWait);
  QueueSnapshot far_back = line({}, std::nullopt);
  far_back.far_back = true;
  EXPECT_EQ(chooseSlot(p, far_back, 1).kind, Kind::kWait);
}

TEST(ChooseSlot, WithoutATicketFirstGetOne) {
  const NamePattern p = pattern(2);
  EXPECT_EQ(chooseSlot(p, line({}, std::nullopt), 0).kind, Kind::kUnqueued);
  EXPECT_EQ(chooseSlot(p, line({}, std::nullopt), 1).kind, Kind::kUnqueued);
  EXPECT_EQ(chooseSlot(p, line({1, 2}, std::nullopt), 0).kind, Kind::kUnqueued);
}

TEST(ChooseSlot, ThePreferredSlotIfItIsFree) {
  const NamePattern p = pattern(10);
  EXPECT_EQ(take(chooseSlot(p, line({1}, 0), 7)), 7);
  EXPECT_EQ(take(chooseSlot(p, line({1, 7}, 0), 7)), 2);
  EXPECT_EQ(take(chooseSlot(p, line({1}, 0), 11)), 2);  // the limit was lowered
}

TEST(ChooseSlot, ThePreferredSlotPastNobodyWhoWaits) {
  const NamePattern p = pattern(3);
  EXPECT_EQ(chooseSlot(p, line({1, 2}, 1), 3).kind, Kind::kWait);
  EXPECT_EQ(take(chooseSlot(p, line({1}, 1), 2)), 2);
}

TEST(ChooseSlot, WhoCannotUseWhatIsFreeHoldsNobodyUp) {
  const NamePattern p = pattern(4);
  EXPECT_EQ(take(chooseSlot(p, line({1, 2}, Tickets{{2, 2}}), 0)), 3);
  EXPECT_EQ(take(chooseSlot(p, line({1, 2}, Tickets{{2, 2}, {4, 1}}), 0)), 4);
  EXPECT_EQ(take(chooseSlot(p, line({1, 2}, Tickets{{4, 1}, {2, 2}}), 0)), 4);
  EXPECT_EQ(chooseSlot(p, line({1, 2}, Tickets{{4, 2}, {2, 2}}), 0).kind, Kind::kWait);
  // The first one that is free is for those ahead, if they can use it.
  EXPECT_EQ(take(chooseSlot(p, line({1}, Tickets{{2, 5}}), 0)), 3);
  EXPECT_EQ(take(chooseSlot(p, line({1}, Tickets{{1, 1}, {2, 1}, {1, 3}}), 0)), 3);
  EXPECT_EQ(chooseSlot(p, line({1, 3, 4}, Tickets{{1, 1}, {2, 1}}), 0).kind, Kind::kWait);
  EXPECT_EQ(take(chooseSlot(p, line({2, 3, 4}, Tickets{{0, 1}}), 0)), 1);
}

TEST(ChooseSlot, ThePreferredSlotIsLeftToWhoCanUseNoOther) {
  const NamePattern p = pattern(4);
  EXPECT_EQ(take(chooseSlot(p, line({1, 3}, Tickets{{2, 1}}), 2)), 4);
  EXPECT_EQ(take(chooseSlot(p, line({3}, Tickets{{2, 1}}), 1)), 1);
  EXPECT_EQ(take(chooseSlot(p, line({1, 2}, Tickets{{2, 1}, {4, 1}}), 3)), 3);
}

TEST(ChooseSlot, AnOwnKeyIsTakenBackOnlyIfItIsAbandoned) {
  const NamePattern p = pattern(2);
  QueueSnapshot own = line({1, 2}, 5);
  own.own = QueueSnapshot::OwnKey{.lease = 7, .abandoned = true};
  EXPECT_EQ(chooseSlot(p, own, 2).kind, Kind::kTakeBack);
  own.own->abandoned = false;
  EXPECT_EQ(chooseSlot(p, own, 2).kind, Kind::kOldLease);
}

TEST(ChooseSlot, TheSlotThatIsReservedForUsWhoeverWaits) {
  const NamePattern p = pattern(3);
  QueueSnapshot reserved = line({1, 3}, 7);
  reserved.own_reservation = {.id = 2, .mod_revision = 5};
  EXPECT_EQ(take(chooseSlot(p, reserved, 0)), 2);
  reserved.taken = {1};
  reserved.older->clear();
  EXPECT_EQ(take(chooseSlot(p, reserved, 3)), 2) << "and not the one that is preferred";
  reserved.older.reset();
  EXPECT_EQ(chooseSlot(p, reserved, 0).kind, Kind::kUnqueued);
}

TEST(ChooseSlot, TheOnlySlotIsTakenWhoeverWaits) {
  const NamePattern p = pattern(4);
  EXPECT_EQ(take(chooseOnly(p, line({1}, 7), 3)), 3);
  EXPECT_EQ(chooseOnly(p, line({3}, size_t{0}), 3).kind, Kind::kWait);
  EXPECT_EQ(chooseOnly(p, line({}, std::nullopt), 3).kind, Kind::kUnqueued);
  QueueSnapshot own = line({3}, 5);
  own.own = QueueSnapshot::OwnKey{.lease = 7, .abandoned = true};
  EXPECT_EQ(chooseOnly(p, own, 3).kind, Kind::kTakeBack);
}

TEST(WaitingForOneSlot, ItsTurnIsWhenThatIsFree) {
  WaitingLine waiting(pattern(4), [] {});
  waiting.waitOnlyFor(3);
  waiting.beginLook();
  waiting.endLook(line({3}, size_t{0}));
  EXPECT_FALSE(waiting.isOurTurn()) << "others are free";
  waiting.remove("w3.x.", 5);
  EXPECT_TRUE(waiting.isOurTurn());
  waiting.waitOnlyFor(0);
  EXPECT_TRUE(waiting.isOurTurn());
}

TEST(ChooseSlot, AHugeLimitCostsNothing) {
  const NamePattern p = pattern(1'000'000'000);
  EXPECT_EQ(take(chooseSlot(p, line({1}, 1), 0)), 3);
  EXPECT_EQ(take(chooseSlot(p, line({1}, 999'999'998), 0)), 1'000'000'000);
  EXPECT_EQ(chooseSlot(p, line({1}, 999'999'999), 0).kind, Kind::kWait);
  QueueSnapshot most = line({}, 5);
  for (int64_t id = 1; id <= 1'000'000; ++id) most.taken.insert(id);
  EXPECT_EQ(chooseSlot(p, most, 0).name, "w1000006.x.");
}

}  // namespace
}  // namespace idetcd::slots
