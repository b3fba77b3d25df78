#include "resolver/waiting_clients.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/ip_address.h"

namespace idetcd::resolver {
namespace {

ClientId idOf(const std::string& address, uint16_t port = 4711) {
  sockaddr_storage storage;
  SocketAddress{.ip = IpAddress::parse(address).value(), .port = port}.toSockaddr(&storage);
  return ClientId::of(reinterpret_cast<const sockaddr*>(&storage));
}

TEST(ClientIdTest, IsAnAddressOrASlash64) {
  EXPECT_EQ(idOf("192.0.2.1", 1), idOf("192.0.2.1", 2));
  EXPECT_EQ(idOf("192.0.2.1"), idOf("::ffff:192.0.2.1"));
  EXPECT_NE(idOf("192.0.2.1"), idOf("192.0.2.2"));
  EXPECT_EQ(idOf("2001:db8:0:1::1"), idOf("2001:db8:0:1:ffff::2"));
  EXPECT_NE(idOf("2001:db8:0:1::1"), idOf("2001:db8:0:2::1"));
  EXPECT_NE(idOf("192.0.2.1"), idOf("c000:201::")) << "families do not mix";
  EXPECT_FALSE(idOf("192.0.2.1").isOurselves());
  EXPECT_TRUE(ClientId::of(nullptr).isOurselves());
}

TEST(ClientIdTest, IsAPortOnLoopback) {
  for (const char* address : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_EQ(idOf(address, 1), idOf(address, 1)) << address;
    EXPECT_NE(idOf(address, 1), idOf(address, 2)) << address;
  }
  EXPECT_NE(idOf("127.0.0.1"), idOf("127.0.0.2"));
  EXPECT_NE(idOf("127.0.0.1"), idOf("::1"));
}

TEST(ClientIdTest, IsAnInterfaceOnALink) {
  EXPECT_NE(idOf("fe80::1"), idOf("fe80::2")) << "all of a link share the /64";
  EXPECT_EQ(idOf("fe80::1", 1), idOf("fe80::1", 2));
}

// As a Forwarder does it: `max_asked` questions, `max_waiting` queries.
class WaitingClientsTest : public testing::Test {
 protected:
  using Admission = WaitingClients::Admission;
  struct Asked : WaitingClients::Question {
    std::string name;
  };

  WaitingClients::Room makeRoom(const QueryOrigin& origin, bool to_ask) {
    const auto room = to_ask ? clients_.makeRoomToAsk(origin, nullptr) : clients_.makeRoomToWait(origin);
    if (room.abandoned != nullptr) {
      clients_.settle(*room.abandoned);
      questions_.erase(std::string(static_cast<Asked*>(room.abandoned)->name));
    }
    while (clients_.hasEvicted()) clients_.takeEvicted()({});
    return room;
  }

  // The outcome; "" if it waits.
  std::string ask(const std::string& client, const std::string& name, uint16_t id = 0, bool urgent = false) {
    QueryOrigin origin{.client = client.empty() ? ClientId{} : idOf(client), .port = 4711, .id = id};
    origin.urgent = urgent;
    auto known = questions_.find(name);
    if (known != questions_.end()) {
      const Admission verdict = clients_.judge(known->second, origin);
      if (verdict == Admission::kAbsorb) return "absorbed";
      if (verdict == Admission::kTooMany) return "too many";
    }
    if (clients_.size() >= max_waiting_ && !makeRoom(origin, false).made) return "cannot wait";
    known = questions_.find(name);
    if (known == questions_.end()) {
      if (questions_.size() >= max_asked_ && !makeRoom(origin, true).made) return "cannot ask";
      known = questions_.try_emplace(name).first;
      known->second.name = name;
      clients_.begin(known->second);
    }
    clients_.add(known->second, origin, 0, [this, client, name](const ForwardResult&) { lost_[client].insert(name); });
    return "";
  }
  void askFor(const std::string& client, int first, int count) {
    for (int i = first; i < first + count; ++i) ASSERT_EQ(ask(client, client + "/" + std::to_string(i)), "") << i;
  }
  size_t held(const std::string& client) const {
    return static_cast<size_t>(std::count_if(questions_.begin(), questions_.end(),
                                             [&client](const auto& q) { return q.first.starts_with(client + "/"); }));
  }

  size_t max_asked_ = 12;
  size_t max_waiting_ = 1000;
  WaitingClients clients_{500};
  std::map<std::string, Asked> questions_;
  std::map<std::string, std::multiset<std::string>> lost_;
};

TEST_F(WaitingClientsTest, OneAloneMayHaveEverything) {
  askFor("192.0.2.1", 0, 12);
  EXPECT_EQ(ask("192.0.2.1", "192.0.2.1/12"), "cannot ask") << "the newcomer is refused";
  EXPECT_TRUE(lost_.empty());
}

TEST_F(WaitingClientsTest, WhoHoldsLessGetsItsShareAtOnce) {
  askFor("192.0.2.1", 0, 12);
  askFor("192.0.2.2", 0, 6);
  EXPECT_EQ(held("192.0.2.1"), 6u);
  EXPECT_EQ(lost_["192.0.2.1"], (std::multiset<std::string>{"192.0.2.1/0", "192.0.2.1/1", "192.0.2.1/2", "192.0.2.1/3",
                                                            "192.0.2.1/4", "192.0.2.1/5"}))
      << "what has waited longest";
  EXPECT_EQ(ask("192.0.2.2", "192.0.2.2/6"), "cannot ask");
  EXPECT_EQ(ask("192.0.2.1", "192.0.2.1/12"), "cannot ask");
  askFor("192.0.2.3", 0, 4);
  EXPECT_EQ(held("192.0.2.1"), 4u);
  EXPECT_EQ(held("192.0.2.2"), 4u);
  EXPECT_EQ(ask("192.0.2.3", "192.0.2.3/4"), "cannot ask");
}

TEST_F(WaitingClientsTest, WhoIsBelowItsShareLosesNothing) {
  askFor("192.0.2.2", 0, 2);
  askFor("192.0.2.1", 0, 10);
  for (int i = 10; i < 100; ++i) ask("192.0.2.1", "192.0.2.1/" + std::to_string(i));
  askFor("192.0.2.3", 0, 3);
  EXPECT_EQ(lost_.size(), 1u);
  EXPECT_EQ(lost_["192.0.2.1"].size(), 3u);
  EXPECT_EQ(held("192.0.2.2"), 2u);
}

TEST_F(WaitingClientsTest, TenThousandClientsHaveEqualShares) {
  max_asked_ = 20002;
  max_waiting_ = 50000;
  askFor("192.0.2.1", 0, 20002);
  for (int i = 0; i < 10000; ++i) {
    const std::string client = "10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250);
    ASSERT_EQ(ask(client, client + "/0"), "");
    ASSERT_EQ(ask(client, client + "/1"), "") << i;
  }
  EXPECT_EQ(lost_.size(), 1u) << "only the one that held more";
  EXPECT_EQ(held("192.0.2.1"), 2u);
  EXPECT_EQ(clients_.clients(), 10001u);
  EXPECT_EQ(ask("10.0.0.0", "10.0.0.0/2"), "cannot ask");
}

TEST_F(WaitingClientsTest, AQuestionThatOthersWaitForStays) {
  for (int i = 0; i < 12; ++i) ASSERT_EQ(ask("192.0.2.1", "both" + std::to_string(i)), "");
  for (int i = 0; i < 11; ++i) ASSERT_EQ(ask("192.0.2.2", "both" + std::to_string(i)), "");
  ASSERT_EQ(ask("192.0.2.3", "its own"), "");
  EXPECT_EQ(lost_["192.0.2.1"], (std::multiset<std::string>{"both11"})) << "the one that makes room";
  EXPECT_TRUE(lost_["192.0.2.2"].empty());
}

TEST_F(WaitingClientsTest, EvenIfTheyWaitForAll) {
  for (int i = 0; i < 12; ++i) ASSERT_EQ(ask("192.0.2.1", "both" + std::to_string(i)), "");
  for (int i = 0; i < 12; ++i) ASSERT_EQ(ask("192.0.2.2", "both" + std::to_string(i)), "");
  ASSERT_EQ(ask("192.0.2.3", "its own"), "");
  EXPECT_EQ(questions_.size(), 12u);
  EXPECT_GE(lost_["192.0.2.1"].size(), 1u);
  EXPECT_GE(lost_["192.0.2.2"].size(), 1u);
}

TEST_F(WaitingClientsTest, AmongEqualsTheOldestQuestionGivesWay) {
  for (uint16_t port = 1; port <= 12; ++port) ask("10.0.0." + std::to_string(port), std::to_string(port));
  EXPECT_EQ(ask("10.0.1.1", "young"), "cannot ask") << "they have not had their time";
  const auto begin = BootClock::now();
  while (BootClock::now() - begin < WaitingClients::kFairTime) {
  }
  EXPECT_EQ(ask("10.0.1.1", "late"), "");
  EXPECT_EQ(lost_["10.0.0.1"], (std::multiset<std::string>{"1"}));
  EXPECT_EQ(ask("10.0.1.1", "and another"), "cannot ask") << "it holds as much as the others";
}

TEST_F(WaitingClientsTest, WhatWeNeedOurselvesComesFirst) {
  for (int i = 0; i < 12; ++i) ask("10.0.0." + std::to_string(i), std::to_string(i));
  EXPECT_EQ(ask("", "ours"), "");
  EXPECT_EQ(ask("127.0.0.1", "etcd", 0, true), "");
  EXPECT_EQ(ask("127.0.0.1", "etcd again", 0, true), "") << "whatever it holds";
  EXPECT_EQ(lost_.size(), 3u);
  EXPECT_TRUE(questions_.contains("ours"));
  for (int i = 0; i < 40; ++i) ask("10.0.1." + std::to_string(i), std::to_string(i));
  EXPECT_TRUE(questions_.contains("ours")) << "never gives way";
}

TEST_F(WaitingClientsTest, WaitingIsSharedToo) {
  max_waiting_ = 40;
  for (uint16_t i = 0; i < 10; ++i) {
    for (uint16_t id = 0; id < 4; ++id) ASSERT_EQ(ask("192.0.2.1", std::to_string(i), id), "");
  }
  EXPECT_EQ(ask("192.0.2.1", "0", 99), "cannot wait");
  for (uint16_t i = 0; i < 10; ++i) {
    for (uint16_t id = 0; id < 2; ++id) ASSERT_EQ(ask("192.0.2.2", std::to_string(i), id), "");
  }
  EXPECT_EQ(lost_["192.0.2.1"].size(), 20u);
  EXPECT_EQ(ask("192.0.2.2", "0", 99), "cannot wait");
  EXPECT_EQ(questions_.size(), 10u);
}

TEST_F(WaitingClientsTest, ARetransmissionIsAbsorbed) {
  EXPECT_EQ(ask("192.0.2.1", "www", 7), "");
  EXPECT_EQ(ask("192.0.2.1", "www", 7), "absorbed");
  EXPECT_EQ(ask("192.0.2.1", "www", 8), "");
  EXPECT_EQ(ask("192.0.2.2", "www", 7), "");
  EXPECT_EQ(clients_.size(), 3u);
}

TEST_F(WaitingClientsTest, RepetitionsAreBounded) {
  Asked question;
  clients_.begin(question);
  const auto judge = [this, &question](const std::string& client, uint16_t id, resolve::Transport transport) {
    const QueryOrigin origin{.client = idOf(client), .port = 1, .id = id, .transport = transport};
    const Admission verdict = clients_.judge(question, origin);
    if (verdict != Admission::kTooMany) clients_.add(question, origin, 0, [](const ForwardResult&) {});
    return verdict;
  };
  for (uint16_t i = 0; i < WaitingClients::kMaxRepeats; ++i) {
    ASSERT_EQ(judge("192.0.2.1", i, resolve::Transport::kUdp),
              i < WaitingClients::kFullAnswers ? Admission::kWait : Admission::kWaitForLittle);
    ASSERT_EQ(judge("192.0.2.2", i, resolve::Transport::kTcp), Admission::kWait) << "a connection's source is no lie";
  }
  EXPECT_EQ(judge("192.0.2.1", 1000, resolve::Transport::kUdp), Admission::kTooMany);
  EXPECT_EQ(judge("192.0.2.2", 1000, resolve::Transport::kTcp), Admission::kTooMany);
  EXPECT_EQ(judge("192.0.2.3", 1000, resolve::Transport::kUdp), Admission::kWait);
}

TEST_F(WaitingClientsTest, OneQuestionIsNotWaitedForByAll) {
  max_waiting_ = 10000;
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(ask("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250), "www"), "");
  }
  EXPECT_EQ(ask("192.0.2.1", "www"), "too many");
  EXPECT_EQ(ask("127.0.0.1", "www"), "") << "this machine's programs";
}

TEST_F(WaitingClientsTest, TheLongestWaitingIsTheFirst) {
  std::string order;
  Asked question;
  clients_.begin(question);
  for (const char* name : {"a", "b", "c"}) {
    const QueryOrigin origin{.client = idOf("192.0.2.1"), .id = static_cast<uint16_t>(*name)};
    clients_.add(question, origin, 100, [&order, name](const ForwardResult&) { order += name; });
  }
  clients_.settle(question);
  while (question.waiting() > 0) {
    const auto taken = clients_.take(question);
    EXPECT_EQ(taken.response_limit, 100u);
    taken.done({});
  }
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(clients_.size(), 0u);
  EXPECT_EQ(clients_.clients(), 0u);
}

}  // namespace
}  // namespace idetcd::resolver
