#include "founding/founding.h"

#include <gtest/gtest.h>

#include "simulation/random.h"

namespace idetcd::founding {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string machineUuid(int number) { return fmt::format("00000000-0000-4000-8000-{:012}", number); }
SocketAddress machineAddress(int number) { return {IpAddress::v4({10, 0, 0, static_cast<uint8_t>(number)}), 2390}; }

// Machine 1 is the oldest. The machine under test is number `self_`; a test says what the others do.
class FoundingTest : public testing::Test {
 protected:
  static Machine machine(int number, uint32_t expect = 3, bool durable = true) {
    return {{number, machineUuid(number)}, {machineAddress(number)}, true, durable, number * 10, expect};
  }
  static Value valueOf(int number) {
    return {
        machineUuid(900 + number), {{number, machineUuid(number)}}, {{machineUuid(number), machineAddress(number)}}, 1};
  }
  Founding make(int self, uint32_t expect = 3) {
    return {machine(self, expect), Record{machineUuid(self), {}, {}, {}}, random_};
  }
  std::vector<Hello::Seen> seen(std::initializer_list<int> numbers, uint32_t expect = 3) {
    std::vector<Hello::Seen> others;
    for (const int number : numbers) others.push_back({machine(number, expect), machineAddress(number), now_});
    return others;
  }
  void write(Founding& founding) {
    if (const auto unwritten = founding.takeUnwritten()) {
      disk_ = unwritten->bytes;
      founding.written(now_, unwritten->version);
    }
  }
  // When it first proposes; none: not within `most`.
  std::optional<Founding::Duration> proposesAfter(Founding& founding, const std::vector<Hello::Seen>& others,
                                                  Founding::Duration most = seconds(20)) {
    const Founding::Time began = now_;
    for (; now_ < began + most; now_ += milliseconds(50)) {
      founding.advance(now_, others, began, true);
      if (founding.state() == Founding::State::kProposing) return now_ - began;
    }
    return std::nullopt;
  }
  // What it says next that is a T.
  template <typename T>
  static std::vector<T> said(Founding& founding) {
    std::vector<T> bodies;
    for (Founding::Outgoing& message : founding.takeMessages()) {
      if (const T* body = std::get_if<T>(&message.body)) bodies.push_back(*body);
    }
    return bodies;
  }
  // The ballot and the nonce of its first Prepare.
  static Founding::Outgoing prepareOf(Founding& founding) {
    const auto messages = founding.takeMessages();
    EXPECT_FALSE(messages.empty());
    return messages.empty() ? Founding::Outgoing{{}, 0, Prepare{}} : messages[0];
  }

  simulation::Random random_{1};
  Founding::Time now_{seconds(1000)};
  std::string disk_;
};

TEST_F(FoundingTest, APromiseIsDurableBeforeItIsAnswered) {
  Founding founding = make(2);
  founding.receive(now_, machineAddress(1), 7, Prepare{machineUuid(2), {1, machineUuid(1)}});
  EXPECT_TRUE(founding.takeMessages().empty());
  write(founding);
  EXPECT_EQ(decodeRecord(disk_, machineUuid(2))->promised, (Ballot{1, machineUuid(1)}));
  const auto promises = said<Promise>(founding);
  ASSERT_EQ(promises.size(), 1u);
  EXPECT_EQ(promises[0].ballot, (Ballot{1, machineUuid(1)}));
  EXPECT_FALSE(promises[0].accepted);
}

TEST_F(FoundingTest, AnAcceptanceIsDurableBeforeItIsAnswered) {
  Founding founding = make(2);
  founding.receive(now_, machineAddress(1), 7, Accept{machineUuid(2), {{1, machineUuid(1)}, valueOf(1)}});
  EXPECT_TRUE(founding.takeMessages().empty());
  write(founding);
  EXPECT_EQ(decodeRecord(disk_, machineUuid(2))->accepted->value, valueOf(1));
  EXPECT_EQ(said<Accepted>(founding).size(), 1u);
}

TEST_F(FoundingTest, WhatIsAskedTwiceIsWrittenOnce) {
  Founding founding = make(2);
  const Prepare request{machineUuid(2), {1, machineUuid(1)}};
  founding.receive(now_, machineAddress(1), 7, request);
  write(founding);
  founding.takeMessages();
  founding.receive(now_, machineAddress(1), 7, request);
  EXPECT_FALSE(founding.takeUnwritten());
  EXPECT_EQ(said<Promise>(founding).size(), 1u);
}

TEST_F(FoundingTest, ALowerBallotThanThePromisedOneIsRefusedAlsoAfterARestart) {
  Founding founding = make(2);
  founding.receive(now_, machineAddress(3), 7, Prepare{machineUuid(2), {5, machineUuid(3)}});
  write(founding);
  Founding restarted(machine(2), decodeRecord(disk_, machineUuid(2)).value(), random_);
  for (Founding* one : {&founding, &restarted}) {
    one->takeMessages();
    one->receive(now_, machineAddress(1), 8, Prepare{machineUuid(2), {4, machineUuid(1)}});
    one->receive(now_, machineAddress(1), 9, Accept{machineUuid(2), {{4, machineUuid(1)}, valueOf(1)}});
    EXPECT_FALSE(one->takeUnwritten());
    const auto refused = said<Refused>(*one);
    ASSERT_EQ(refused.size(), 2u);
    EXPECT_EQ(refused[0].promised, (Ballot{5, machineUuid(3)}));
  }
}

TEST_F(FoundingTest, APromiseTellsWhatWasAcceptedBefore) {
  Founding founding = make(2);
  founding.receive(now_, machineAddress(1), 7, Accept{machineUuid(2), {{1, machineUuid(1)}, valueOf(1)}});
  write(founding);
  founding.takeMessages();
  founding.receive(now_, machineAddress(3), 8, Prepare{machineUuid(2), {2, machineUuid(3)}});
  write(founding);
  EXPECT_EQ(said<Promise>(founding).at(0).accepted, (Acceptance{{1, machineUuid(1)}, valueOf(1)}));
}

TEST_F(FoundingTest, TheOldestProposesAfterTheQuiet) {
  Founding founding = make(1);
  EXPECT_EQ(proposesAfter(founding, seen({2})), Founding::kQuiet);
  const auto prepares = said<Prepare>(founding);
  ASSERT_EQ(prepares.size(), 1u);
  EXPECT_EQ(prepares[0].to, machineUuid(2));
}

TEST_F(FoundingTest, IfAllThatAreExpectedAreSeenThereIsNothingToWaitFor) {
  Founding founding = make(1);
  EXPECT_EQ(proposesAfter(founding, seen({2, 3})), Founding::Duration(0));
}

TEST_F(FoundingTest, NobodyProposesBeforeAllAddressesAreAsked) {
  Founding founding = make(1);
  for (const Founding::Time end = now_ + seconds(10); now_ < end; now_ += milliseconds(50))
    founding.advance(now_, seen({2, 3}), now_, false);
  EXPECT_EQ(founding.state(), Founding::State::kAsking);
  EXPECT_TRUE(founding.takeMessages().empty());
  EXPECT_EQ(proposesAfter(founding, seen({2, 3})), Founding::Duration(0));
}

TEST_F(FoundingTest, TheNextOneProposesIfTheOldestIsSilent) {
  Founding second = make(2);
  EXPECT_EQ(proposesAfter(second, seen({1, 3})), Founding::kRankDelay);
  Founding third = make(3);
  EXPECT_EQ(proposesAfter(third, seen({1, 2})), 2 * Founding::kRankDelay);
}

TEST_F(FoundingTest, TheAttemptOfAnotherOneHasItsTime) {
  Founding second = make(2);
  second.receive(now_, machineAddress(3), 7, Prepare{machineUuid(2), {1, machineUuid(3)}});
  EXPECT_GE(proposesAfter(second, seen({1, 3})), Founding::kAttempt);
}

TEST_F(FoundingTest, ItDoesNotProposeWhenItMayNot) {
  Founding alone = make(1);
  EXPECT_FALSE(proposesAfter(alone, seen({})));
  EXPECT_EQ(alone.state(), Founding::State::kTooFew);
  Founding crowded = make(1);
  EXPECT_FALSE(proposesAfter(crowded, seen({2, 3, 4})));
  EXPECT_EQ(crowded.state(), Founding::State::kTooMany);
  Founding other = make(1);
  EXPECT_FALSE(proposesAfter(other, seen({2, 3}, 4)));
  EXPECT_EQ(other.state(), Founding::State::kDisagreement);
}

TEST_F(FoundingTest, AQuorumIsMoreThanAHalfOfWhatIsExpected) {
  for (const auto& [expect, quorum] : {std::pair{1U, 1U}, {2U, 2U}, {3U, 2U}, {4U, 3U}, {5U, 3U}, {200U, 101U}})
    EXPECT_EQ(make(1, expect).quorum(), quorum) << expect;
}

// One founds for all: 1 proposes, the others do as they are told.
TEST_F(FoundingTest, DecidesWhatAQuorumHasAcceptedAndTellsItOnceItIsDurable) {
  Founding founding = make(1);
  ASSERT_TRUE(proposesAfter(founding, seen({2, 3})));
  const auto prepare = prepareOf(founding);
  const Ballot ballot = std::get<Prepare>(prepare.body).ballot;
  EXPECT_FALSE(founding.receive(now_, prepare.nonce + 1, Promise{machine(2), ballot, {}}));
  EXPECT_TRUE(founding.receive(now_, prepare.nonce, Promise{machine(3), ballot, {}}));
  EXPECT_TRUE(founding.receive(now_, prepare.nonce, Promise{machine(2), ballot, {}}));
  EXPECT_TRUE(said<Accept>(founding).empty()) << "its own promise is not durable yet";
  write(founding);
  const auto accepts = said<Accept>(founding);
  ASSERT_EQ(accepts.size(), 2u);
  const Value value = accepts[0].proposal.value;
  EXPECT_EQ(value.members, (std::vector<Member>{{1, machineUuid(1)}, {2, machineUuid(2)}, {3, machineUuid(3)}}));
  EXPECT_EQ(value.voters.size(), 3u);
  EXPECT_EQ(value.token_base, 31);

  founding.receive(now_, prepare.nonce, Accepted{machineUuid(2), ballot});
  EXPECT_FALSE(founding.decision());
  write(founding);  // its own acceptance: the quorum
  EXPECT_FALSE(founding.decision());
  EXPECT_TRUE(said<Decided>(founding).empty());
  write(founding);
  EXPECT_EQ(founding.decision(), value);
  EXPECT_EQ(said<Decided>(founding).size(), 2u);

  Founding restarted(machine(1), decodeRecord(disk_, machineUuid(1)).value(), random_);
  EXPECT_EQ(restarted.decision(), value);
  restarted.receive(now_, machineAddress(2), 9, Prepare{machineUuid(1), {9, machineUuid(2)}});
  EXPECT_EQ(said<Decided>(restarted).at(0).value, value) << "a late attempt";
}

TEST_F(FoundingTest, TheValueOfTheHighestBallotIsAdopted) {
  Founding founding = make(1, 5);
  ASSERT_TRUE(proposesAfter(founding, seen({2, 3, 4}, 5)));
  const auto prepare = prepareOf(founding);
  const Ballot ballot = std::get<Prepare>(prepare.body).ballot;
  write(founding);
  founding.receive(now_, prepare.nonce, Promise{machine(2, 5), ballot, Acceptance{{1, machineUuid(2)}, valueOf(2)}});
  founding.receive(now_, prepare.nonce, Promise{machine(3, 5), ballot, Acceptance{{1, machineUuid(4)}, valueOf(4)}});
  founding.receive(now_, prepare.nonce, Promise{machine(4, 5), ballot, {}});
  EXPECT_EQ(said<Accept>(founding).at(0).proposal.value, valueOf(4));
}

TEST_F(FoundingTest, AQuorumIsEnoughIfTheOthersStaySilent) {
  Founding founding = make(1);
  ASSERT_TRUE(proposesAfter(founding, seen({2, 3})));
  const auto prepare = prepareOf(founding);
  write(founding);
  founding.receive(now_, prepare.nonce, Promise{machine(2), std::get<Prepare>(prepare.body).ballot, {}});
  EXPECT_TRUE(said<Accept>(founding).empty());
  now_ += Founding::kResend;
  founding.advance(now_, seen({2, 3}), now_, true);
  EXPECT_EQ(said<Prepare>(founding).at(0).to, machineUuid(3));
  now_ += Founding::kAllPromise;
  founding.advance(now_, seen({2, 3}), now_, true);
  EXPECT_EQ(said<Accept>(founding).at(0).proposal.value.members.size(), 2u);
}

TEST_F(FoundingTest, ARefusedOneTriesAgainWithAHigherBallot) {
  Founding founding = make(1);
  ASSERT_TRUE(proposesAfter(founding, seen({2, 3})));
  const auto prepare = prepareOf(founding);
  const Ballot ballot = std::get<Prepare>(prepare.body).ballot;
  EXPECT_TRUE(founding.receive(now_, prepare.nonce, Refused{ballot, {8, machineUuid(3)}}));
  EXPECT_FALSE(founding.receive(now_, prepare.nonce, Promise{machine(2), ballot, {}})) << "given up";
  ASSERT_TRUE(proposesAfter(founding, seen({2, 3})));
  EXPECT_EQ(said<Prepare>(founding).at(0).ballot, (Ballot{9, machineUuid(1)}));
}

TEST_F(FoundingTest, VotersAreTheOldestWithADiskAndOdd) {
  const struct {
    int machines;
    std::set<int> without_disk;
    std::vector<int> voters;
  } cases[] = {
      {1, {}, {1}},
      {2, {}, {1}},
      {2, {1}, {2}},
      {3, {}, {1, 2, 3}},
      {4, {1}, {2, 3, 4}},
      {4, {1, 2}, {3}},  // of two, one more failure would be fatal, not one less
      {9, {}, {1, 2, 3}},
      {10, {}, {1, 2, 3, 4, 5}},
      {10, {1, 3, 5, 7, 9, 10}, {2, 4, 6}},
      {3, {1, 2, 3}, {1, 2, 3}},
  };
  for (const auto& test : cases) {
    const auto expect = static_cast<uint32_t>(test.machines);
    const auto durable = [&test](int number) { return !test.without_disk.contains(number); };
    Founding founding(machine(1, expect, durable(1)), Record{machineUuid(1), {}, {}, {}}, random_);
    std::vector<Hello::Seen> others;
    for (int i = 2; i <= test.machines; ++i)
      others.push_back({machine(i, expect, durable(i)), machineAddress(i), now_});
    ASSERT_TRUE(proposesAfter(founding, others));
    if (test.machines == 1) {
      write(founding), write(founding), write(founding);
    } else {
      const auto prepare = prepareOf(founding);
      write(founding);
      for (const Hello::Seen& other : others)
        founding.receive(now_, prepare.nonce, Promise{other.machine, std::get<Prepare>(prepare.body).ballot, {}});
    }
    const Value value = test.machines == 1 ? founding.decision().value() : said<Accept>(founding).at(0).proposal.value;
    std::vector<Voter> voters;
    for (const int number : test.voters) voters.push_back({machineUuid(number), machineAddress(number)});
    EXPECT_EQ(value.voters, voters) << test.machines << " machines";
  }
}

TEST_F(FoundingTest, WhoHasTheProgramVotesBeforeWhoHasADiskOnly) {
  const struct {
    bool older_has_it, older_keeps, younger_has_it, younger_keeps;
    int voter;
  } cases[] = {
      {true, true, true, true, 1},  {false, true, true, true, 2},   {false, true, true, false, 2},
      {true, false, true, true, 2}, {false, false, false, true, 2}, {false, false, false, false, 1},
  };
  for (const auto& test : cases) {
    Machine older = machine(1, 2, test.older_keeps);
    older.can_vote = test.older_has_it;
    Machine younger = machine(2, 2, test.younger_keeps);
    younger.can_vote = test.younger_has_it;
    Founding founding(older, Record{machineUuid(1), {}, {}, {}}, random_);
    ASSERT_TRUE(proposesAfter(founding, {{younger, machineAddress(2), now_}}));
    const auto prepare = prepareOf(founding);
    write(founding);
    founding.receive(now_, prepare.nonce, Promise{younger, std::get<Prepare>(prepare.body).ballot, {}});
    const Value value = said<Accept>(founding).at(0).proposal.value;
    EXPECT_EQ(value.voters, (std::vector<Voter>{{machineUuid(test.voter), machineAddress(test.voter)}}));
  }
}

TEST_F(FoundingTest, WhatWasDecidedStays) {
  Founding founding = make(2);
  founding.learn(valueOf(1));
  EXPECT_FALSE(founding.decision());
  founding.learn(valueOf(3));
  write(founding);
  EXPECT_EQ(founding.decision(), valueOf(1));
  founding.receive(now_, machineAddress(3), 7, Accept{machineUuid(2), {{9, machineUuid(3)}, valueOf(3)}});
  EXPECT_FALSE(founding.takeUnwritten());
  EXPECT_EQ(said<Decided>(founding).at(0).value, valueOf(1));
  EXPECT_FALSE(proposesAfter(founding, seen({1, 3})));
}

}  // namespace
}  // namespace idetcd::founding
