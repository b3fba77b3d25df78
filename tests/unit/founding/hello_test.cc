#include "founding/hello.h"

#include <set>

#include <gtest/gtest.h>

#include "simulation/random.h"

namespace idetcd::founding {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string uuidOf(int number) { return fmt::format("00000000-0000-4000-8000-{:012}", number); }
SocketAddress addressOf(int number) {
  return {IpAddress::v4({10, 0, static_cast<uint8_t>(number >> 8), static_cast<uint8_t>(number)}), 2390};
}
Machine machineOf(int number) { return {{number, uuidOf(number)}, {addressOf(number)}, true, true, 0, 9}; }

class HelloTest : public testing::Test {
 protected:
  static constexpr int kSelf = 500;

  Hello make(std::vector<SocketAddress> addresses) {
    return {machineOf(kSelf), std::move(addresses), false, now_, random_};
  }
  // Asks until `until`; those that answer do so at once. The number of questions to each address.
  std::map<SocketAddress, int> ask(Hello& hello, Hello::Time until, const std::set<int>& answering = {}) {
    std::map<SocketAddress, int> asked;
    for (; now_ < until; now_ += milliseconds(50)) {
      for (const Hello::Question& question : hello.due(now_)) {
        ++asked[question.to];
        for (const int number : answering) {
          if (question.to != addressOf(number)) continue;
          EXPECT_TRUE(hello.answered(now_, question.to, question.nonce, {machineOf(number), {}, {}}));
        }
      }
    }
    return asked;
  }

  simulation::Random random_{1};
  Hello::Time now_{seconds(1000)};
};

TEST_F(HelloTest, SilentAddressesAreAskedEverLessOften) {
  Hello hello = make({addressOf(1)});
  EXPECT_GE(ask(hello, now_ + seconds(3))[addressOf(1)], 3);
  ask(hello, now_ + seconds(60));
  const int later = ask(hello, now_ + seconds(100))[addressOf(1)];
  EXPECT_GE(later, 13);  // every 5 s, more or less
  EXPECT_LE(later, 40);
}

TEST_F(HelloTest, MachinesOfALargeNetworkThatStartAtOnceDoNotAllAskTheSameOnes) {
  const auto network = Hello::addressesOf(IpNetwork::parse("10.0.0.0/22").value(), 2390).value();
  std::map<SocketAddress, int> asked;
  for (int number = 1; number <= 1000; number += 10) {
    Hello hello(machineOf(number), network, false, now_, random_);
    for (const Hello::Question& question : hello.due(now_ + milliseconds(100))) ++asked[question.to];
    std::vector<SocketAddress> others = hello.others({});
    others.resize(25);
    for (const SocketAddress& address : others) ++asked[address];
  }
  for (const auto& [address, count] : asked) EXPECT_LE(count, 10) << address.toString();
}

TEST_F(HelloTest, ALargeNetworkIsSearchedSlowly) {
  Hello hello = make(Hello::addressesOf(IpNetwork::parse("10.0.0.0/22").value(), 2390).value());
  const auto sum = [](const std::map<SocketAddress, int>& asked) {
    int all = 0;
    for (const auto& [address, count] : asked) all += count;
    return all;
  };
  EXPECT_LE(sum(ask(hello, now_ + seconds(2))), 520);
  EXPECT_EQ(ask(hello, now_ + seconds(10)).size(), 1021u) << "all but its own address";
  ask(hello, now_ + seconds(60));
  EXPECT_LE(sum(ask(hello, now_ + seconds(60))), 60 * 60);
}

TEST_F(HelloTest, ConfiguredOnesAreAskedForEverOthersAreForgotten) {
  Hello hello = make({addressOf(1)});
  hello.resolved(now_, {addressOf(2)});
  hello.asked(now_, addressOf(3), machineOf(3));
  const auto first = ask(hello, now_ + seconds(100));
  EXPECT_GT(first.at(addressOf(2)), Hello::kPatience);
  EXPECT_EQ(first.at(addressOf(3)), Hello::kPatience);
  hello.resolved(now_, {addressOf(4)});  // the name leads elsewhere
  const auto later = ask(hello, now_ + seconds(100));
  EXPECT_EQ(later.size(), 2u);
  EXPECT_TRUE(later.contains(addressOf(1)) && later.contains(addressOf(4)));
}

TEST_F(HelloTest, WhoAnswersIsSeenAndWhoIsSilentNoMore) {
  Hello hello = make({addressOf(1), addressOf(2)});
  ask(hello, now_ + seconds(1), {1, 2});
  EXPECT_EQ(hello.electors(now_).size(), 2u);
  ask(hello, now_ + Hello::kSeenFor + seconds(1), {2});
  ASSERT_EQ(hello.electors(now_).size(), 1u);
  EXPECT_EQ(hello.electors(now_)[0].machine, machineOf(2));
  EXPECT_EQ(hello.peers(now_), std::vector{addressOf(2)});
}

TEST_F(HelloTest, OnlyAnswersToWhatWasAskedCount) {
  Hello hello = make({addressOf(1)});
  const Hello::Question question = hello.due(now_).at(0);
  EXPECT_FALSE(hello.answered(now_, addressOf(1), question.nonce + 1, {machineOf(1), {}, {}}));
  EXPECT_FALSE(hello.answered(now_, addressOf(1), 0, {machineOf(1), {}, {}}));
  EXPECT_TRUE(hello.electors(now_).empty());
  EXPECT_TRUE(hello.answered(now_, addressOf(1), question.nonce, {machineOf(1), {}, {}}));
  EXPECT_FALSE(hello.answered(now_, addressOf(1), question.nonce, {machineOf(1), {}, {}})) << "a copy";
  EXPECT_EQ(hello.electors(now_).size(), 1u);
}

TEST_F(HelloTest, AnAnswerMayComeFromAnotherAddressOfTheMachine) {
  Hello hello = make({addressOf(1)});
  const Hello::Question question = hello.due(now_).at(0);
  EXPECT_TRUE(hello.answered(now_, addressOf(2), question.nonce, {machineOf(1), {}, {}}));
  EXPECT_EQ(hello.electors(now_).at(0).address, addressOf(2));
}

TEST_F(HelloTest, WhoAsksIsAskedAtOnceButNotAllTheTime) {
  Hello hello = make({});
  int questions = 0;
  for (int i = 0; i < 1000; ++i, now_ += milliseconds(1)) {
    hello.asked(now_, addressOf(1), machineOf(1));
    questions += static_cast<int>(hello.due(now_).size());
    EXPECT_TRUE(i > 0 || questions == 1);
  }
  EXPECT_LE(questions, 6);
}

TEST_F(HelloTest, WhomOthersTellOfIsAsked) {
  Hello hello = make({addressOf(1)});
  const Hello::Question question = hello.due(now_).at(0);
  hello.answered(now_, addressOf(1), question.nonce, {machineOf(1), {addressOf(2), addressOf(3)}, {}});
  std::vector<SocketAddress> asked;
  for (const Hello::Question& next : hello.due(now_)) asked.push_back(next.to);
  EXPECT_EQ(asked, (std::vector{addressOf(2), addressOf(3)}));
}

TEST_F(HelloTest, ItsOwnAddressIsNotAsked) {
  Hello hello = make({addressOf(kSelf), addressOf(1)});
  hello.resolved(now_, {addressOf(kSelf)});
  EXPECT_FALSE(ask(hello, now_ + seconds(60), {1}).contains(addressOf(kSelf)));
  EXPECT_TRUE(hello.hasAskedAll(now_));
}

TEST_F(HelloTest, AllAreAskedWhenEachHasAnsweredOrHadItsTime) {
  Hello hello = make({addressOf(1), addressOf(2), addressOf(kSelf)});
  EXPECT_FALSE(hello.hasAskedAll(now_));
  for (const Hello::Question& question : hello.due(now_)) {
    if (question.to == addressOf(1)) hello.answered(now_, question.to, question.nonce, {machineOf(1), {}, {}});
  }
  EXPECT_FALSE(hello.hasAskedAll(now_)) << "the other one is silent";
  ask(hello, now_ + Hello::kAnswer - milliseconds(50));
  EXPECT_FALSE(hello.hasAskedAll(now_));
  now_ += milliseconds(50);
  EXPECT_TRUE(hello.hasAskedAll(now_));
  hello.resolved(now_, {addressOf(3)});
  EXPECT_FALSE(hello.hasAskedAll(now_)) << "one that the name leads to";
  ask(hello, now_ + milliseconds(50), {3});
  EXPECT_TRUE(hello.hasAskedAll(now_));
  hello.asked(now_, addressOf(4), machineOf(4));
  EXPECT_TRUE(hello.hasAskedAll(now_)) << "one that has asked";
}

TEST_F(HelloTest, ALargeNetworkIsAskedOnceBeforeAllAreAsked) {
  Hello hello = make(Hello::addressesOf(IpNetwork::parse("10.0.0.0/22").value(), 2390).value());
  ask(hello, now_ + seconds(4));
  EXPECT_FALSE(hello.hasAskedAll(now_));
  ask(hello, now_ + seconds(1));
  EXPECT_TRUE(hello.hasAskedAll(now_));
}

TEST_F(HelloTest, ANetworkIsAskedTwiceBeforeAllAreAsked) {
  Hello hello = make(Hello::addressesOf(IpNetwork::parse("10.0.0.0/25").value(), 2390).value());
  std::map<SocketAddress, int> asked;
  while (!hello.hasAskedAll(now_)) {
    for (const auto& [address, count] : ask(hello, now_ + milliseconds(50))) asked[address] += count;
  }
  EXPECT_EQ(asked.size(), 126u);
  for (const auto& [address, count] : asked) EXPECT_GE(count, 2) << address.toString();
}

TEST_F(HelloTest, AQuestionThatCouldNotBeSentIsNone) {
  Hello hello = make({addressOf(1)});
  for (const Hello::Time until = now_ + seconds(10); now_ < until; now_ += milliseconds(50)) {
    for (const Hello::Question& question : hello.due(now_)) hello.unsent(now_, question.to);
    EXPECT_FALSE(hello.hasAskedAll(now_));
  }
  EXPECT_GE(ask(hello, now_ + 2 * Hello::kAnswer)[addressOf(1)], 2) << "as at the beginning";
  EXPECT_TRUE(hello.hasAskedAll(now_));
  hello.unsent(now_, addressOf(1));
  EXPECT_TRUE(hello.hasAskedAll(now_)) << "it was asked before";
}

TEST_F(HelloTest, NamesAreWaitedForForATime) {
  Hello hello(machineOf(kSelf), {}, true, now_, random_);
  EXPECT_FALSE(hello.hasAskedAll(now_));
  hello.resolved(now_, {}, false);
  EXPECT_FALSE(hello.hasAskedAll(now_));
  EXPECT_TRUE(hello.hasAskedAll(now_ + Hello::kNamePatience));
  hello.resolved(now_, {});
  EXPECT_TRUE(hello.hasAskedAll(now_));
}

TEST_F(HelloTest, MembersOfAnotherClusterAreWhereNoneOfThisOneWasSeen) {
  Hello hello = make({addressOf(1), addressOf(2), addressOf(3), addressOf(kSelf)});
  ask(hello, now_ + milliseconds(50), {1, 2, kSelf});
  EXPECT_EQ(hello.others({machineOf(kSelf).member, machineOf(1).member, machineOf(9).member}),
            (std::vector{addressOf(2), addressOf(3)}));
}

TEST_F(HelloTest, NewsAreElectorsThatWereNotSeen) {
  Hello hello = make({addressOf(1), addressOf(2)});
  const Hello::Time start = now_;
  EXPECT_EQ(hello.lastNews(), start);
  now_ += seconds(1);
  ask(hello, now_ + seconds(1), {1});
  const Hello::Time first = hello.lastNews();
  EXPECT_GT(first, start);
  ask(hello, now_ + seconds(20), {1});
  EXPECT_EQ(hello.lastNews(), first);
  ask(hello, now_ + seconds(20), {1, 2});
  EXPECT_GT(hello.lastNews(), first);
}

TEST_F(HelloTest, MemoryIsBounded) {
  Hello hello = make({});
  for (int i = 0; i < 20'000; ++i) hello.asked(now_, addressOf(i), machineOf(i));
  size_t answered = 0;
  for (const Hello::Question& question : hello.due(now_)) {
    hello.answered(now_, question.to, question.nonce, {machineOf(static_cast<int>(answered)), {}, {}});
    ++answered;
  }
  EXPECT_LE(answered, kMaxMachines);
  EXPECT_LE(hello.electors(now_).size(), kMaxMachines);
  EXPECT_EQ(hello.peers(now_).size(), kMaxPeers);
}

// A request may come again with any address.
TEST_F(HelloTest, AddressesThatDoNotAnswerMakeRoom) {
  Hello hello = make({addressOf(1)});
  hello.asked(now_, addressOf(2), machineOf(2));
  ask(hello, now_ + milliseconds(100), {2});
  for (int i = 1000; i < 20'000; ++i) hello.asked(now_, addressOf(i), machineOf(3));
  hello.asked(now_, addressOf(4), machineOf(4));
  hello.resolved(now_, {addressOf(5)});
  const auto asked = ask(hello, now_ + seconds(5), {2, 4});
  EXPECT_LE(asked.size(), kMaxMachines);
  for (const int number : {1, 2, 4, 5}) EXPECT_TRUE(asked.contains(addressOf(number))) << number;
  EXPECT_EQ(hello.electors(now_).size(), 2u);
}

TEST_F(HelloTest, AddressesThatNobodyHasAreNotAsked) {
  Hello hello = make(
      {{IpAddress::v4({0, 0, 0, 0}), 2390}, {IpAddress::v4({224, 0, 0, 1}), 2390}, {IpAddress::v4({10, 0, 0, 1}), 0}});
  EXPECT_TRUE(ask(hello, now_ + seconds(5)).empty());
}

TEST(HelloNetwork, IsSearchedButForWhatNoMachineHas) {
  const auto addresses = [](const char* text) { return Hello::addressesOf(IpNetwork::parse(text).value(), 2390); };
  ASSERT_EQ(addresses("192.0.2.77/24")->size(), 254u);
  EXPECT_EQ(addresses("192.0.2.77/24")->front().toString(), "192.0.2.1:2390");
  EXPECT_EQ(addresses("192.0.2.77/24")->back().toString(), "192.0.2.254:2390");
  EXPECT_EQ(addresses("10.1.3.0/22")->size(), 1022u);
  EXPECT_EQ(addresses("10.1.3.0/22")->front().toString(), "10.1.0.1:2390");
  EXPECT_EQ(addresses("10.1.3.0/22")->back().toString(), "10.1.3.254:2390");
  EXPECT_EQ(addresses("192.0.2.77/31")->size(), 2u);
  EXPECT_EQ(addresses("192.0.2.77")->front().toString(), "192.0.2.77:2390");
  EXPECT_EQ(addresses("2001:db8::/118")->back().toString(), "[2001:db8::3ff]:2390");
  EXPECT_EQ(addresses("10.0.0.0/21").error().message, "a network of at most a /22 can be searched");
  EXPECT_EQ(addresses("2001:db8::/64").error().message, "a network of at most a /118 can be searched");
}

}  // namespace
}  // namespace idetcd::founding
