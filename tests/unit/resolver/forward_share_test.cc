// The cost of one client's questions for the others.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "resolver/forwarder.h"
#include "resolver/waiting_clients.h"
#include "support/forward_fixture.h"

namespace idetcd::resolver {
namespace {

class ForwardShareTest : public ForwardFixture {
 protected:
  using Wait = Forwarder::Wait;
  struct Got {
    std::optional<ForwardResult> result;
    Wait wait = Wait::kForAll;
  };
  using GotPtr = std::shared_ptr<Got>;

  static QueryOrigin from(const std::string& address, uint16_t id = 0, uint16_t port = 4711) {
    sockaddr_storage storage;
    SocketAddress{.ip = IpAddress::parse(address).value(), .port = port}.toSockaddr(&storage);
    return {.client = ClientId::of(reinterpret_cast<const sockaddr*>(&storage)),
            .port = port,
            .id = id,
            .query_size = 50,
            .response_limit = 1232};
  }
  GotPtr askAs(const QueryOrigin& origin, const std::string& name) {
    auto got = std::make_shared<Got>();
    Message message(name, 1, 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    got->wait = forwarder_->resolve(query, origin, [this, got](const ForwardResult& result) {
      EXPECT_FALSE(got->result) << "called twice";
      got->result = result;
      order_.push_back(got.get());
      loop_.stop();
    });
    return got;
  }
  static std::string numbered(int i) { return std::to_string(i) + ".example.org."; }
  // Answers what begins with "live".
  static void answerLive(const Asked& asked, const Reply& reply) {
    if (asked.name().starts_with("live")) reply.send(asked.answer());
  }
  void wait(const GotPtr& got) {
    runUntil([&got] { return got->result.has_value(); });
  }

  std::vector<const Got*> order_;
};

void expectOverload(const std::optional<ForwardResult>& result) {
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->response);
  EXPECT_EQ(result->rcode, dns::Rcode::kServFail);
  EXPECT_TRUE(result->ede);
  EXPECT_TRUE(result->overloaded) << "nothing that the cache should remember";
}

TEST_F(ForwardShareTest, AFullRoomHasPlacesForOtherClients) {
  auto& server = upstream(answerLive);
  Forwarder::Options options = optionsFor({server.target()});
  options.max_in_flight = 100;
  make(options);
  std::vector<GotPtr> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(askAs(from("192.0.2.1"), numbered(i)));
  const GotPtr more = askAs(from("192.0.2.1"), "more.example.org.");
  expectOverload(more->result);
  for (int i = 0; i < 30; ++i) {
    const GotPtr live = askAs(from("192.0.2.2"), "live" + numbered(i));
    wait(live);
    EXPECT_EQ(lastOctet(*live->result), 1);
  }
  expectOverload(flood.front()->result);
  EXPECT_FALSE(flood.back()->result);
  EXPECT_EQ(counted("idetcd_forward_evicted_total"), 1u) << "there is one place too many from then on";
}

TEST_F(ForwardShareTest, SocketsAreSharedToo) {
  auto& server = upstream(answerLive);
  Forwarder::Options options = optionsFor({server.target()});
  options.room = roomFor(32);  // 20 of them for datagrams
  make(options);
  std::vector<GotPtr> flood;
  for (int i = 0; i < 30; ++i) flood.push_back(askAs(from("192.0.2.1"), numbered(i)));
  for (int i = 0; i < 30; ++i) EXPECT_EQ(flood[static_cast<size_t>(i)]->result.has_value(), i >= 20) << i;
  expectOverload(flood.back()->result);
  std::vector<GotPtr> live;
  for (int i = 0; i < 10; ++i) live.push_back(askAs(from("192.0.2.2"), "live" + numbered(i)));
  for (const GotPtr& got : live) {
    wait(got);
    EXPECT_EQ(lastOctet(*got->result), 1);
  }
  EXPECT_EQ(counted("idetcd_forward_evicted_total"), 10u);
}

// Not only those of one Forwarder: the first that comes does not keep all for itself.
TEST_F(ForwardShareTest, SocketsAreSharedAmongForwarders) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = optionsFor({server.target()});
  options.attempt_time = options.total_time = kTimeout;
  options.max_fails = 0;
  options.room = roomFor(32);  // 20 of them for datagrams
  make(options);
  std::vector<GotPtr> flood;
  for (int i = 0; i < 20; ++i) flood.push_back(askAs(from("192.0.2.1"), numbered(i)));
  const std::unique_ptr<Forwarder> first = std::move(forwarder_);
  make(options);
  std::vector<GotPtr> others;
  for (int i = 0; i < 12; ++i) others.push_back(askAs(from("192.0.2.1"), numbered(i)));
  wait(flood[9]);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(flood[i]->result.has_value(), i < 10) << i;
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(others[i]->result.has_value(), i >= 10) << i;
  expectOverload(flood[0]->result);
}

TEST_F(ForwardShareTest, WhoHasToGiveWayIsToldLater) {
  auto& server = upstream(sayNothing);
  Forwarder::Options options = optionsFor({server.target()});
  options.max_in_flight = 2;
  make(options);
  const GotPtr first = askAs(from("192.0.2.1"), "a.example.org.");
  askAs(from("192.0.2.1"), "b.example.org.");
  askAs(from("192.0.2.2"), "c.example.org.");
  EXPECT_FALSE(first->result) << "not within another's query";
  EXPECT_EQ(forwarder_->waiting(), 3u) << "a reload must not lose it";
  wait(first);
  expectOverload(first->result);
  EXPECT_EQ(forwarder_->waiting(), 2u);
}

TEST_F(ForwardShareTest, RetransmissionsWaitOnce) {
  Reply held;
  auto& server = upstream([&held](const Asked&, const Reply& reply) { held = reply; });
  make(optionsFor({server.target()}));
  const GotPtr first = askAs(from("192.0.2.1", 7), "www.example.org.");
  const GotPtr again = askAs(from("192.0.2.1", 7), "www.example.org.");
  EXPECT_EQ(first->wait, Wait::kForAll);
  EXPECT_EQ(again->wait, Wait::kForNothing);
  EXPECT_EQ(again.use_count(), 1) << "the callback is gone";
  EXPECT_EQ(counted("idetcd_forward_absorbed_total"), 1u);
  runUntil([&server] { return server.udpCount() == 1; });
  held.send(server.asked().front().answer());
  wait(first);
  EXPECT_FALSE(again->result);
}

TEST_F(ForwardShareTest, RepetitionsWaitForLittle) {
  auto& server = upstream(sayNothing);
  make(optionsFor({server.target()}));
  size_t in_full = 0;
  size_t refused = 0;
  for (uint16_t id = 0; id < 1000; ++id) {
    const GotPtr got = askAs(from("192.0.2.1", id), "www.example.org.");
    if (got->result) {
      expectOverload(got->result);
      ++refused;
    } else if (got->wait == Wait::kForAll) {
      ++in_full;
    }
  }
  EXPECT_EQ(in_full, WaitingClients::kFullAnswers);
  EXPECT_EQ(refused, 1000 - WaitingClients::kMaxRepeats);
  EXPECT_EQ(Forwarder::truncationLimit(from("192.0.2.1")), 100u) << "twice the query";
}

TEST_F(ForwardShareTest, AnswersForManyLeaveOneAfterTheOther) {
  Reply held;
  auto& server = upstream([&held](const Asked&, const Reply& reply) { held = reply; });
  make(optionsFor({server.target()}));
  constexpr int kClients = 3000;
  std::vector<GotPtr> all;
  for (int i = 0; i < kClients; ++i) {
    all.push_back(askAs(from("127.0.0.1", 1, static_cast<uint16_t>(1024 + i)), "www.example.org."));
  }
  runUntil([&server] { return server.udpCount() == 1; });
  held.send(server.asked().front().answer());
  runUntil([this] { return !order_.empty(); });
  EXPECT_LT(order_.size(), size_t{kClients} / 4) << "not all in one turn of the loop";
  const auto begin = BootClock::now();
  size_t turns = 0;
  while (order_.size() < kClients && turns < kClients) {
    loop_.run();  // ends with the turn in which a client got an answer
    ++turns;
  }
  ASSERT_EQ(order_.size(), size_t{kClients});
  EXPECT_GT(turns, 5u);
  constexpr auto kLeastTime =
      milliseconds((kClients * LateAnswers::kLeast - 3 * LateAnswers::kBurst) / LateAnswers::kBytesPerMillisecond);
  EXPECT_GE(BootClock::now() - begin, kLeastTime);
  for (int i = 0; i < kClients; ++i) EXPECT_EQ(order_[static_cast<size_t>(i)], all[static_cast<size_t>(i)].get());
  EXPECT_EQ(server.udpCount(), 1u);
  EXPECT_EQ(forwarder_->waiting(), 0u);
}

TEST_F(ForwardShareTest, FewDoNotWaitBehindManyForAnotherAnswer) {
  std::map<std::string, Reply> held;
  auto& server = upstream([&held](const Asked& asked, const Reply& reply) { held[asked.name()] = reply; });
  make(optionsFor({server.target()}));
  constexpr int kMany = 3000;
  constexpr auto kLateTurn = 2 * LateAnswers::kBurst / LateAnswers::kLeast;
  for (int i = 0; i < kMany; ++i) {
    askAs(from("127.0.0.1", 1, static_cast<uint16_t>(1024 + i)), "many.example.org.");
  }
  std::vector<GotPtr> few;
  for (uint16_t i = 0; i < 3; ++i) few.push_back(askAs(from("127.0.0.1", 1, 10000 + i), "few.example.org."));
  runUntil([&held] { return held.size() == 2; });
  const auto reply_to = [&](const std::string& name) {
    for (const Asked& asked : server.asked()) {
      if (asked.name() == name) return held[name].send(asked.answer());
    }
  };
  reply_to("many.example.org.");
  runUntil([this] { return !order_.empty(); });
  reply_to("few.example.org.");
  runUntil([this] { return order_.size() == kMany + 3; });
  const auto place = [this](const GotPtr& got) { return std::find(order_.begin(), order_.end(), got.get()); };
  EXPECT_LE(place(few.back()) - place(few.front()), kLateTurn) << "in turn with the many";
  EXPECT_EQ(forwarder_->waiting(), 0u);
}

// A client that does not read takes no time of those who do.
TEST_F(ForwardShareTest, WhatIsPutOffDoesNotCountAsSent) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    UpstreamMessage response = asked.response();
    for (uint8_t i = 0; i < 250; ++i) response.a(asked.name(), 60, {192, 0, 2, i});
    reply.send(response.bytes);
  });
  make(optionsFor({server.target()}));
  constexpr size_t kClients = 1000;
  size_t answered = 0;
  for (size_t i = 0; i < kClients; ++i) {
    QueryOrigin origin = from("127.0.0.1", 1, static_cast<uint16_t>(1024 + i));
    origin.transport = resolve::Transport::kTcp;
    origin.response_limit = 65535;
    Message message("www.example.org.", 1, 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    forwarder_->resolve(query, origin, [&](const ForwardResult&) {
      ++answered;
      forwarder_->noteDeferred();
      loop_.stop();
    });
  }
  runUntil([&answered] { return answered > 0; });
  size_t turns = 0;
  for (size_t last = answered; answered < kClients; last = answered) {
    runUntil([&] { return answered > last; });
    ++turns;
  }
  EXPECT_LT(turns, 30u);
}

TEST_F(ForwardShareTest, DestroyedWhileAnswersAreLeft) {
  auto& server = upstream(answerAll);
  make(optionsFor({server.target()}));
  std::vector<GotPtr> all;
  for (int i = 0; i < 3000; ++i) {
    all.push_back(askAs(from("127.0.0.1", 1, static_cast<uint16_t>(1024 + i)), "www.example.org."));
  }
  runUntil([this] { return !order_.empty(); });
  ASSERT_GT(forwarder_->waiting(), 0u);
  forwarder_.reset();
  EXPECT_EQ(all.back().use_count(), 1);
  runFor(milliseconds(10));
}

TEST_F(ForwardShareTest, OurOwnQuestionsComeFirst) {
  auto& server = upstream(answerLive);
  Forwarder::Options options = optionsFor({server.target()});
  options.max_in_flight = 10;
  options.max_concurrent = 20;
  make(options);
  for (uint16_t i = 0; i < 10; ++i) askAs(from("127.0.0.1", 1, static_cast<uint16_t>(1024 + i)), numbered(i));
  for (uint16_t i = 0; i < 30; ++i) askAs(from("127.0.0.1", 1, static_cast<uint16_t>(2024 + i)), numbered(0));
  QueryOrigin urgent = from("127.0.0.1", 1, 999);
  EXPECT_EQ(askAs(urgent, "live.etcd.")->result->rcode, dns::Rcode::kRefused) << "max_concurrent";
  urgent.urgent = true;
  const GotPtr got = askAs(urgent, "live.etcd.");
  wait(got);
  EXPECT_EQ(lastOctet(*got->result), 1);
}

}  // namespace
}  // namespace idetcd::resolver
