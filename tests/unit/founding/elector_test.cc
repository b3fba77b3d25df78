#include "founding/elector.h"

#include <set>

#include <gtest/gtest.h>

#include "simulation/random.h"

namespace idetcd::founding {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint16_t kElectorPort = 2390;
const Key kOurs = Secret::parse("the secret of the machines")->derive(kMessageLabel);
const Key kTheirs = Secret::parse("the secret of a stranger")->derive(kMessageLabel);

std::string electorUuid(int number) { return fmt::format("00000000-0000-4000-8000-{:012}", number); }
SocketAddress electorAddress(int number) {
  return {IpAddress::v4({10, 0, 0, static_cast<uint8_t>(number)}), kElectorPort};
}

// Machines 1, 2, … on a network without faults, with disks that take no time.
class ElectorTest : public testing::Test {
 protected:
  Elector& add(int number, uint32_t expect, const Key& key = kOurs, Elector::Duration silence = {}) {
    Record record{electorUuid(number), {}, {}, {}};
    if (disks_.contains(number)) record = *decodeRecord(disks_[number], record.uuid);
    Elector::Options options;
    options.self = {.member = {number, electorUuid(number)},
                    .addresses = {electorAddress(number)},
                    .durable = true,
                    .expect = expect};
    options.port = kElectorPort;
    options.peers = peers_;
    options.silence = silence;
    auto& elector = electors_[number];
    elector = std::make_unique<Elector>(options, key, std::move(record), now_, random_);
    return *elector;
  }
  void run(Elector::Duration time) {
    for (const Elector::Time end = now_ + time; now_ < end; now_ += milliseconds(10)) {
      for (auto& [number, elector] : electors_) elector->advance(now_);
      while (deliver()) {
      }
    }
  }
  bool deliver() {
    bool any = false;
    for (auto& [number, elector] : electors_) {
      while (auto unwritten = elector->takeUnwritten()) {
        disks_[number] = unwritten->bytes;
        elector->written(now_, unwritten->version);
      }
      for (const Elector::Outgoing& message : elector->takeMessages()) {
        any = true;
        sent_.push_back({number, message});
        for (auto& [other, receiver] : electors_) {
          if (message.to == electorAddress(other)) receiver->receive(now_, electorAddress(number), message.envelope);
        }
      }
    }
    return any;
  }
  static uint64_t dropped(const Elector& elector, Drop reason) { return elector.drops()[static_cast<size_t>(reason)]; }
  static Body bodyOf(const Elector::Outgoing& message) { return decode(unseal(kOurs, message.envelope)->body)->body; }

  simulation::Random random_{1};
  Elector::Time now_{seconds(1000)};
  std::vector<SocketAddress> peers_{electorAddress(1), electorAddress(2), electorAddress(3), electorAddress(4)};
  std::map<int, std::unique_ptr<Elector>> electors_;
  std::vector<std::pair<int, Elector::Outgoing>> sent_;
  std::map<int, std::string> disks_;
};

TEST_F(ElectorTest, TwoMachinesFoundAClusterAndALateOneJoinsIt) {
  const Elector& first = add(1, 3);
  const Elector& second = add(2, 3);
  run(seconds(1));
  ASSERT_TRUE(first.decision());
  EXPECT_EQ(first.decision(), second.decision());
  EXPECT_EQ(first.decision()->numberOf(electorUuid(2)), 2);
  EXPECT_EQ(first.progress(now_).toString(), "a member of the cluster");
  EXPECT_GT(first.wakeAt(now_), now_ + seconds(1)) << "a member has little to do";

  const Elector& late = add(3, 3);
  run(milliseconds(50));
  EXPECT_EQ(late.decision(), first.decision());
  EXPECT_EQ(late.decision()->numberOf(electorUuid(3)), 0);
}

// More than a quorum of new machines starts at once, and they find each other first.
TEST_F(ElectorTest, AClusterAtTheEndOfALargeNetworkIsFoundBeforeAnotherOneIsFounded) {
  add(1, 2);
  add(2, 2);
  run(seconds(2));
  ASSERT_TRUE(electors_[1]->decision());
  peers_ = {electorAddress(3), electorAddress(4)};
  const auto network = Hello::addressesOf(IpNetwork::parse("10.1.0.0/23").value(), kElectorPort).value();
  peers_.insert(peers_.end(), network.begin(), network.end());
  peers_.push_back(electorAddress(1));
  const Elector& third = add(3, 2);
  add(4, 2);
  run(seconds(1));
  EXPECT_EQ(third.progress(now_).toString(), "2 of 2 machines seen, 1 s: not all addresses are asked yet");
  run(seconds(4));
  EXPECT_EQ(third.decision(), electors_[1]->decision());
  EXPECT_EQ(electors_[4]->decision(), electors_[1]->decision());
}

TEST_F(ElectorTest, AMemberThatReachesTheVotersAsksAllAddressesOnceSoonAfterwards) {
  peers_ = Hello::addressesOf(IpNetwork::parse("10.0.0.0/23").value(), kElectorPort).value();
  Elector& first = add(1, 1);
  run(seconds(4));
  ASSERT_TRUE(first.decision());
  sent_.clear();
  first.search(false);
  run(seconds(3));
  std::set<SocketAddress> asked;
  for (const auto& [number, message] : sent_) asked.insert(message.to);
  EXPECT_EQ(asked.size(), 509u) << "all but its own";
  sent_.clear();
  run(seconds(100));
  EXPECT_LE(sent_.size(), 21u);
}

TEST_F(ElectorTest, AMemberThatSearchesLearnsTheVotersOfToday) {
  Elector& first = add(1, 2);
  Elector& second = add(2, 2);
  run(seconds(1));
  ASSERT_TRUE(first.decision() && second.decision());
  EXPECT_EQ(second.voters(), first.decision()->voters);
  const std::vector<Voter> today{{electorUuid(4), electorAddress(4)}};
  first.setVoters(today);
  run(seconds(10));
  EXPECT_NE(second.voters(), today) << "a member asks nobody";
  second.search(true);
  run(seconds(10));
  EXPECT_EQ(second.voters(), today);
  EXPECT_EQ(second.decision(), first.decision()) << "what was decided stays";

  const Elector& late = add(3, 2);
  run(seconds(10));
  EXPECT_EQ(late.voters(), today);
  EXPECT_EQ(late.decision(), first.decision());
}

TEST_F(ElectorTest, MembersAskEachOtherNowAndThenAndSayLittle) {
  add(1, 2);
  add(2, 2);
  run(seconds(10));
  sent_.clear();
  run(seconds(100));
  size_t bytes = 0;
  for (const auto& [number, message] : sent_) {
    bytes += message.envelope.size();
    const auto body = bodyOf(message);
    const auto* response = std::get_if<HelloResponse>(&body);
    EXPECT_FALSE(response != nullptr && response->cluster) << "the other one knows the cluster";
  }
  EXPECT_GE(sent_.size(), 20u);
  EXPECT_LE(bytes, 100u * 200);
}

TEST_F(ElectorTest, MembersOfALargeClusterShareTheAsking) {
  constexpr int kMachines = 48;
  for (int number = 1; number <= kMachines; ++number) add(number, kMachines);
  run(seconds(10));
  for (auto& [number, elector] : electors_) {
    ASSERT_TRUE(elector->decision());
    EXPECT_EQ(elector->decision()->members.size(), static_cast<size_t>(kMachines));
    elector->search(false);
  }
  run(seconds(30));
  sent_.clear();
  run(seconds(60));
  const auto asked = std::ranges::count_if(
      sent_, [](const auto& one) { return std::holds_alternative<HelloRequest>(bodyOf(one.second)); });
  EXPECT_GE(asked, kMachines);
  EXPECT_LE(asked, kMachines * 4) << "each one every 20 s";
}

// Machines 1 and 2, each the only one of its cluster; the second one's is the younger.
class TwoClustersTest : public ElectorTest {
 protected:
  void SetUp() override {
    add(1, 1);
    run(seconds(1));
    auto first = std::move(electors_.extract(1).mapped());
    add(2, 1);
    run(seconds(1));
    electors_[1] = std::move(first);
    ASSERT_TRUE(older().decision() && younger().decision());
  }
  Elector& older() { return *electors_[1]; }
  Elector& younger() { return *electors_[2]; }
};

TEST_F(TwoClustersTest, TheYoungerOneDissolves) {
  const Value survives = *older().decision();
  const Value dissolves = *younger().decision();
  older().search(false);
  younger().search(false);
  run(seconds(30));
  EXPECT_EQ(older().other(), dissolves);
  EXPECT_FALSE(older().next());
  EXPECT_EQ(younger().next(), survives);
  EXPECT_EQ(younger().decision(), dissolves) << "it may hold something of it";

  sent_.clear();
  run(seconds(30));
  for (const auto& [number, message] : sent_) EXPECT_NE(number, 2) << "it is of neither cluster";
  younger().left();
  run(seconds(1));
  EXPECT_EQ(younger().decision(), survives);
  EXPECT_FALSE(younger().next());
  EXPECT_EQ(decodeRecord(disks_[2], electorUuid(2))->decided, survives);
  run(seconds(30));
  EXPECT_FALSE(older().next());
  EXPECT_FALSE(younger().next());
}

TEST_F(TwoClustersTest, WhoJoinsTheOtherOneKnowsItsVotersOfToday) {
  const std::vector<Voter> today{{electorUuid(4), electorAddress(4)}};
  older().setVoters(today);
  older().search(false);
  run(seconds(30));
  ASSERT_TRUE(younger().next());
  younger().left();
  run(seconds(1));
  EXPECT_EQ(younger().decision(), older().decision());
  EXPECT_EQ(younger().voters(), today);
  EXPECT_EQ(decodeRecord(disks_[2], electorUuid(2))->voters, today);
}

TEST_F(TwoClustersTest, AMachineThatIsStartedAgainGoesOnDissolving) {
  older().search(false);
  run(seconds(30));
  ASSERT_TRUE(younger().next());
  electors_.erase(2);
  add(2, 1);
  EXPECT_EQ(younger().next(), older().decision());
  younger().left();
  run(seconds(1));
  EXPECT_EQ(younger().decision(), older().decision());
}

TEST_F(TwoClustersTest, NobodyDissolvesForAClusterThatHasNoVotersLeft) {
  younger().search(false);
  run(seconds(30));
  EXPECT_EQ(younger().other(), older().decision());
  EXPECT_FALSE(younger().next()) << "it is not known whether the older one lives";
  older().search(true);
  run(seconds(30));
  EXPECT_FALSE(younger().next());
  older().search(false);
  run(seconds(30));
  EXPECT_TRUE(younger().next());
}

TEST_F(ElectorTest, AStrangerIsToldNothingAndTellsNothing) {
  const Elector& stranger = add(1, 2, kTheirs);
  const Elector& ours = add(2, 2);
  run(seconds(30));
  EXPECT_FALSE(stranger.decision());
  EXPECT_FALSE(ours.decision());
  EXPECT_EQ(ours.progress(now_).seen, 1u);
  EXPECT_GT(dropped(ours, Drop::kMac), 0u);
  for (const auto& [number, message] : sent_) {
    if (number != 2 || message.to == electorAddress(2)) continue;
    EXPECT_TRUE(std::holds_alternative<HelloRequest>(bodyOf(message)));
  }
}

TEST_F(ElectorTest, NothingIsAnsweredToWhatIsNotAuthentic) {
  Elector& elector = add(1, 2);
  const std::string request =
      seal(kOurs, 7, encode(Message{kElectorPort, HelloRequest{Machine{{2, electorUuid(2)}, {electorAddress(2)}}}}));
  for (size_t size = 0; size < request.size(); ++size)
    elector.receive(now_, electorAddress(2), request.substr(0, size));
  elector.receive(now_, electorAddress(2), seal(kTheirs, 7, unseal(kOurs, request)->body));
  elector.receive(now_, electorAddress(2), seal(kOurs, 7, "no message"));
  EXPECT_TRUE(elector.takeMessages().empty());
  EXPECT_EQ(dropped(elector, Drop::kBody), 1u);
  elector.receive(now_, electorAddress(2), request);
  const auto answers = elector.takeMessages();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(unseal(kOurs, answers[0].envelope)->nonce, 7u);
  EXPECT_TRUE(std::holds_alternative<HelloResponse>(bodyOf(answers[0])));
}

// A stranger sends all back, or again with the address of a member.
TEST_F(ElectorTest, WhatComesBackToItIsNoAnswer) {
  const Elector& member = add(2, 1);
  run(seconds(2));
  ASSERT_TRUE(member.decision());
  Elector& elector = add(1, 1);
  elector.advance(now_);
  const auto questions = elector.takeMessages();
  EXPECT_EQ(questions.size(), 3u) << "its own address is not asked";
  for (const Elector::Outgoing& question : questions) elector.receive(now_, question.to, question.envelope);
  const HelloResponse own{Machine{{1, electorUuid(1)}, {electorAddress(1)}, true}, {}, {}};
  elector.receive(now_, electorAddress(2),
                  seal(kOurs, unseal(kOurs, questions[0].envelope)->nonce, encode(Message{kElectorPort, own})));
  EXPECT_TRUE(elector.takeMessages().empty());
  EXPECT_EQ(dropped(elector, Drop::kReceiver), 4u);
  run(seconds(2));
  ASSERT_TRUE(elector.decision());
  EXPECT_EQ(elector.decision()->cluster, member.decision()->cluster);
}

TEST_F(ElectorTest, AnAnswerToNothingThatWasAskedIsDropped) {
  Elector& elector = add(1, 2);
  const Value value{electorUuid(9), {{2, electorUuid(2)}}, {{electorUuid(2), electorAddress(2)}}, 1};
  const Machine other{{2, electorUuid(2)}, {electorAddress(2)}};
  for (const Body& body :
       {Body(HelloResponse{other, {}, value}), Body(Promise{other, {1, electorUuid(1)}, {}}),
        Body(Accepted{electorUuid(2), {1, electorUuid(1)}}), Body(Refused{{1, electorUuid(1)}, {2, electorUuid(2)}})})
    elector.receive(now_, electorAddress(2), seal(kOurs, 7, encode(Message{kElectorPort, body})));
  EXPECT_EQ(dropped(elector, Drop::kNonce), 4u);
  EXPECT_FALSE(elector.takeUnwritten());
}

TEST_F(ElectorTest, WhatWasSaidToAnotherMachineIsDropped) {
  Elector& elector = add(1, 2);
  const Value value{electorUuid(9), {{2, electorUuid(2)}}, {{electorUuid(2), electorAddress(2)}}, 1};
  const Ballot ballot{1, electorUuid(2)};
  for (const Body& body : {Body(Prepare{electorUuid(5), ballot}), Body(Accept{electorUuid(5), {ballot, value}}),
                           Body(Decided{electorUuid(5), value})})
    elector.receive(now_, electorAddress(2), seal(kOurs, 7, encode(Message{kElectorPort, body})));
  EXPECT_EQ(dropped(elector, Drop::kReceiver), 3u);
  EXPECT_FALSE(elector.takeUnwritten());
}

TEST_F(ElectorTest, ASilentOneTakesNoPartButJoins) {
  Elector& silent = add(1, 2, kOurs, seconds(22));
  add(2, 2);
  run(seconds(10));
  EXPECT_FALSE(silent.decision()) << "nobody counts it";
  EXPECT_EQ(silent.progress(now_).toString(), "1 of 2 machines seen, 10 s: silent after a restart");
  run(seconds(20));
  EXPECT_TRUE(silent.decision()) << "its time is over";

  const Elector& next = add(3, 2, kOurs, seconds(22));
  run(milliseconds(50));
  EXPECT_TRUE(next.decision());
}

TEST_F(ElectorTest, AnObserverIsNotCalledSilentAfterARestart) {
  const Elector& observer = add(1, 2, kOurs, Elector::kForEver);
  run(seconds(2));
  EXPECT_EQ(observer.progress(now_).toString(), "0 of 2 machines seen, 2 s: observes, and founds nothing");
}

TEST_F(ElectorTest, SaysWhyItWaits) {
  const Elector& elector = add(1, 9);
  add(2, 9);
  add(3, 9);
  run(seconds(12));
  EXPECT_EQ(elector.progress(now_).toString(), "3 of 5 machines seen, 12 s");
  add(4, 8);
  run(seconds(3));
  EXPECT_EQ(elector.progress(now_).toString(), "4 of 5 machines seen, 15 s: not all expect the same number");
}

}  // namespace
}  // namespace idetcd::founding
