#include "net/udp_query_socket.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "net/udp_socket.h"
#include "support/network_namespace.h"
#include "support/udp_reply.h"

namespace idetcd::net {
namespace {

using std::chrono::milliseconds;

std::span<const uint8_t> bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// To a loopback address, and to another one: sockets of two kinds.
class UdpQuerySocketTest : public testing::TestWithParam<const char*> {
 protected:
  struct Handler : UdpQueryHandler {
    void onDatagram(std::span<const uint8_t> datagram) override {
      received.emplace_back(datagram.begin(), datagram.end());
      if (then) then();
    }
    void onError(int e) override {
      error = e;
      if (then) then();
    }
    std::vector<std::string> received;
    int error = 0;
    std::function<void()> then;
  };

  void run() {
    Timer guard(loop, [this] {
      ADD_FAILURE() << "nothing happened";
      loop.stop();
    });
    guard.start(std::chrono::minutes(1));  // counted from the loop's last turn, before the test was prepared
    loop.run();
  }
  SocketAddress serverAddress() const { return server.localAddress(); }

  const IpAddress address = IpAddress::parse(GetParam()).value();
  test_support::NetworkNamespace network;
  EventLoop loop;
  SecureRandom random;
  UdpSocket server = UdpSocket::bind({.ip = address}, false).value();
  UdpBatch batch;
  std::unique_ptr<UdpQuerySockets> made = UdpQuerySockets::make(loop, random).value();
  UdpQuerySockets& clients = *made;
  Handler handler;
};

INSTANTIATE_TEST_SUITE_P(Loopback, UdpQuerySocketTest, testing::Values("127.0.0.1"));
INSTANTIATE_TEST_SUITE_P(Other, UdpQuerySocketTest, testing::Values(test_support::NetworkNamespace::kAddress));

TEST_P(UdpQuerySocketTest, ADatagramAndItsAnswers) {
  UdpQuerySocket client;
  ASSERT_EQ(clients.send(serverAddress(), bytes("question"), handler, client), 0);
  EXPECT_TRUE(client.isOpen());
  ASSERT_EQ(batch.receive(server), 1u);
  EXPECT_EQ(std::string(batch.buffer(0), batch.buffer(0) + batch.size(0)), "question");
  for (const char* answer : {"one", "", "two"}) test_support::sendReply(server, batch.peer(0), bytes(answer));
  handler.then = [this] {
    if (handler.received.size() == 3) loop.stop();
  };
  run();
  EXPECT_EQ(handler.received, (std::vector<std::string>{"one", "", "two"}));
  client.close();
  client.close();
  EXPECT_FALSE(client.isOpen());
}

TEST_P(UdpQuerySocketTest, EachHasAPortOfItsOwnThatIsSetAsideForClients) {
  std::set<uint16_t> ports;
  std::vector<UdpQuerySocket> open(200);
  for (auto& client : open) ASSERT_EQ(clients.send(serverAddress(), bytes("x"), handler, client), 0);
  bool ascending = true;
  uint16_t last = 0;
  while (const size_t count = batch.receive(server)) {
    for (size_t i = 0; i < count; ++i) {
      ascending = ascending && batch.sourcePort(i) > last;
      last = batch.sourcePort(i);
      ports.insert(last);
    }
  }
  EXPECT_EQ(ports.size(), 200u);
  EXPECT_FALSE(ascending);
  EXPECT_GE(*ports.begin(), 1024);
}

TEST_P(UdpQuerySocketTest, EachHasAFreshPortWhenTheyFollowEachOther) {
  std::map<uint16_t, int> ports;
  int least = 65535;
  int most = 0;
  for (int i = 0; i < 500; ++i) {
    UdpQuerySocket client;
    ASSERT_EQ(clients.send(serverAddress(), bytes("x"), handler, client), 0);
    ASSERT_EQ(batch.receive(server), 1u);
    ++ports[batch.sourcePort(0)];
    least = std::min<int>(least, batch.sourcePort(0));
    most = std::max<int>(most, batch.sourcePort(0));
  }
  // Of 500 draws out of 28,000 some four are the same as another one.
  EXPECT_GT(ports.size(), 480u);
  EXPECT_GT(most - least, 10000);
}

TEST_P(UdpQuerySocketTest, WhatComesForAFormerUserIsNotItsSuccessors) {
  UdpQuerySocket first;
  ASSERT_EQ(clients.send(serverAddress(), bytes("first"), handler, first), 0);
  ASSERT_EQ(batch.receive(server), 1u);
  const UdpPeer former = batch.peer(0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(test_support::sendReply(server, former, bytes("in time, and not read")));
  first.close();
  ASSERT_TRUE(test_support::sendReply(server, former, bytes("while it is idle")));

  Handler other;
  UdpQuerySocket second;
  ASSERT_EQ(clients.send(serverAddress(), bytes("second"), other, second), 0);
  ASSERT_EQ(batch.receive(server), 1u);
  ASSERT_TRUE(test_support::sendReply(server, former, bytes("too late")));
  ASSERT_TRUE(test_support::sendReply(server, batch.peer(0), bytes("answer")));
  other.then = [this] { loop.stop(); };
  run();
  EXPECT_EQ(other.received, std::vector<std::string>{"answer"});
  EXPECT_TRUE(handler.received.empty());
}

TEST_P(UdpQuerySocketTest, WhatAnotherSendsIsPassedOver) {
  UdpQuerySocket client;
  ASSERT_EQ(clients.send(serverAddress(), bytes("question"), handler, client), 0);
  ASSERT_EQ(batch.receive(server), 1u);
  const UdpSocket stranger = UdpSocket::bind({.ip = address}, false).value();
  test_support::sendReply(stranger, batch.peer(0), bytes("forged"));
  test_support::sendReply(server, batch.peer(0), bytes("answer"));
  handler.then = [this] { loop.stop(); };
  run();
  EXPECT_EQ(handler.received, std::vector<std::string>{"answer"});
}

// No other machine has a way to a socket that is not connected.
TEST_P(UdpQuerySocketTest, ASocketHasTheAddressThatItIsAskedFrom) {
  UdpQuerySocket client;
  ASSERT_EQ(clients.send(serverAddress(), bytes("question"), handler, client), 0);
  EXPECT_EQ(client.localIp(), address);
}

TEST_P(UdpQuerySocketTest, SocketsAreUsedAgainWithoutAReadOnceEpollHasNamedNone) {
  std::vector<UdpQuerySocket> open(3);
  for (auto& client : open) ASSERT_EQ(clients.send(serverAddress(), bytes("x"), handler, client), 0);
  ASSERT_EQ(batch.receive(server), 3u);
  const UdpPeer unread = batch.peer(0);
  test_support::sendReply(server, unread, bytes("not read"));
  open[0].close();
  open[1].close();
  EXPECT_EQ(clients.idleCount(), 2u);
  test_support::sendReply(server, batch.peer(2), bytes("answer"));
  handler.then = [this] { loop.stop(); };
  run();
  EXPECT_EQ(clients.idleCount(), 1u) << "in one of them something waited";
  Handler other;
  ASSERT_EQ(clients.send(serverAddress(), bytes("next"), other, open[1]), 0);
  EXPECT_EQ(clients.idleCount(), 0u);
  ASSERT_EQ(batch.receive(server), 1u);
  test_support::sendReply(server, batch.peer(0), bytes("its answer"));
  other.then = [this] { loop.stop(); };
  run();
  EXPECT_EQ(other.received, std::vector<std::string>{"its answer"});
}

TEST_P(UdpQuerySocketTest, TheNextIsNotToldOfARefusal) {
  SocketAddress nobody = serverAddress();
  {
    const auto closed = UdpSocket::bind({.ip = address}, false).value();
    nobody = closed.localAddress();
  }
  for (int i = 0; i < 3; ++i) {
    {
      UdpQuerySocket refused;
      ASSERT_EQ(clients.send(nobody, bytes("x"), handler, refused), 0);  // closed without having been read
    }
    UdpQuerySocket client;
    Handler other;
    ASSERT_EQ(clients.send(serverAddress(), bytes("x"), other, client), 0);
    ASSERT_EQ(batch.receive(server), 1u);
    test_support::sendReply(server, batch.peer(0), bytes("answer"));
    other.then = [this] { loop.stop(); };
    run();
    EXPECT_EQ(other.error, 0);
    EXPECT_EQ(other.received.size(), 1u);
  }
  EXPECT_EQ(handler.error, 0);
}

TEST_P(UdpQuerySocketTest, BothFamiliesInTurn) {
  UdpSocket server6 = UdpSocket::bind({.ip = IpAddress::parse("::1").value()}, false).value();
  for (int i = 0; i < 4; ++i) {
    UdpSocket& asked = i % 2 == 0 ? server : server6;
    UdpQuerySocket client;
    handler.received.clear();
    ASSERT_EQ(clients.send(asked.localAddress(), bytes("x"), handler, client), 0);
    ASSERT_EQ(batch.receive(asked), 1u);
    test_support::sendReply(asked, batch.peer(0), bytes("answer"));
    handler.then = [this] { loop.stop(); };
    run();
    EXPECT_EQ(handler.received.size(), 1u);
  }
}

TEST_P(UdpQuerySocketTest, ABudgetHolds) {
  const auto budget = DescriptorBudget::make(5);  // two of which are guaranteed to others
  {
    const auto bounded_owner = UdpQuerySockets::make(loop, random, budget->account(0)).value();
    const auto other_owner = UdpQuerySockets::make(loop, random, budget->account(0)).value();
    UdpQuerySockets& bounded = *bounded_owner;
    UdpQuerySockets& other = *other_owner;
    UdpQuerySocket a, b, c, d;
    ASSERT_EQ(bounded.send(serverAddress(), bytes("a"), handler, a), 0);
    ASSERT_EQ(bounded.send(serverAddress(), bytes("b"), handler, b), 0);
    ASSERT_EQ(other.send(serverAddress(), bytes("c"), handler, c), 0);
    EXPECT_EQ(budget->used(), 3u);
    EXPECT_EQ(other.send(serverAddress(), bytes("d"), handler, d), EMFILE);
    EXPECT_FALSE(d.isOpen());
    EXPECT_EQ(budget->used(), 3u);
    b.close();
    EXPECT_EQ(bounded.send(serverAddress(), bytes("d"), handler, d), 0) << "the kept socket is one of the three";
    EXPECT_EQ(budget->used(), 3u);
  }
  EXPECT_EQ(budget->used(), 0u);
}

TEST_P(UdpQuerySocketTest, AKeptSocketGivesWayToOneOfTheOtherFamily) {
  UdpSocket server6 = UdpSocket::bind({.ip = IpAddress::parse("::1").value()}, false).value();
  const auto budget = DescriptorBudget::make(11);  // eight of them for datagrams
  const auto account = budget->account(0);
  const auto first = UdpQuerySockets::make(loop, random, account).value();
  const auto second = UdpQuerySockets::make(loop, random, account).value();
  std::vector<UdpQuerySocket> open(8);
  for (auto& client : open) ASSERT_EQ(first->send(serverAddress(), bytes("x"), handler, client), 0);
  for (auto& client : open) client.close();
  EXPECT_EQ(first->idleCount(), 5u) << "half of the budget";
  std::vector<UdpQuerySocket> others(4);
  for (auto& client : others) ASSERT_EQ(first->send(server6.localAddress(), bytes("x"), handler, client), 0);
  EXPECT_EQ(first->idleCount(), 4u);
  for (auto& client : open)
    EXPECT_EQ(first->send(serverAddress(), bytes("x"), handler, client), &client < &open[4] ? 0 : EMFILE);
  others.clear();
  EXPECT_EQ(first->idleCount(), 4u);
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(second->send(serverAddress(), bytes("x"), handler, open[i]), 0) << i;
  EXPECT_EQ(first->idleCount(), 0u);
  EXPECT_EQ(budget->used(), 8u);
}

TEST_P(UdpQuerySocketTest, KeptSocketsDecay) {
  constexpr size_t kBurst = 100;
  const auto budget = DescriptorBudget::make(1000);
  const auto kept = UdpQuerySockets::make(loop, random, budget->account(0)).value();
  std::vector<UdpQuerySocket> open(kBurst);
  for (auto& client : open) ASSERT_EQ(kept->send(serverAddress(), bytes("x"), handler, client), 0);
  open.clear();
  EXPECT_EQ(kept->idleCount(), kBurst);
  const auto until = [&](size_t count, const std::function<void()>& work) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    Timer tick(loop, [&] {
      work();
      if (kept->idleCount() <= count || std::chrono::steady_clock::now() > deadline) loop.stop();
    });
    tick.start(milliseconds(1), milliseconds(20));
    loop.run();
  };
  std::vector<UdpQuerySocket> needed(30);
  until(needed.size(), [&] {  // who goes on needing some keeps those
    for (auto& client : needed) ASSERT_EQ(kept->send(serverAddress(), bytes("x"), handler, client), 0);
    for (auto& client : needed) client.close();
  });
  EXPECT_EQ(kept->idleCount(), needed.size());
  EXPECT_EQ(budget->used(), needed.size());
  until(0, [] {});
  EXPECT_EQ(budget->used(), 0u);
}

TEST_P(UdpQuerySocketTest, WhoSendsIsCounted) {
  size_t held = 0;
  UdpQuerySocket a, b;
  ASSERT_EQ(clients.send(serverAddress(), bytes("a"), handler, a, &held), 0);
  ASSERT_EQ(clients.send(serverAddress(), bytes("b"), handler, b, &held), 0);
  EXPECT_EQ(held, 2u);
  const UdpQuerySocket moved = std::move(b);
  a.close();
  EXPECT_EQ(held, 1u);
}

TEST_P(UdpQuerySocketTest, RefusalIsReported) {
  SocketAddress nobody = serverAddress();
  {
    const auto closed = UdpSocket::bind({.ip = address}, false).value();
    nobody = closed.localAddress();
  }
  UdpQuerySocket client;
  ASSERT_EQ(clients.send(nobody, bytes("x"), handler, client), 0);
  handler.then = [this] { loop.stop(); };
  run();
  EXPECT_EQ(handler.error, ECONNREFUSED);
}

TEST_P(UdpQuerySocketTest, WhatCannotBeSentIsAnError) {
  size_t held = 0;
  UdpQuerySocket client;
  EXPECT_EQ(clients.send({.ip = IpAddress::v4({198, 51, 100, 1}), .port = 53}, bytes("x"), handler, client, &held),
            ENETUNREACH)
      << "nothing leads there";
  EXPECT_FALSE(client.isOpen());
  EXPECT_EQ(held, 0u);
}

TEST_P(UdpQuerySocketTest, AHandlerMayCloseAndOpenOthers) {
  // Both are readable in the same wake-up; the first closes both and opens another in the freed slot.
  size_t held = 0;
  UdpQuerySocket a, b, c;
  Handler other;
  ASSERT_EQ(clients.send(serverAddress(), bytes("a"), handler, a, &held), 0);
  ASSERT_EQ(clients.send(serverAddress(), bytes("b"), handler, b, &held), 0);
  ASSERT_EQ(batch.receive(server), 2u);
  for (size_t i = 0; i < 2; ++i) test_support::sendReply(server, batch.peer(i), bytes("answer"));
  handler.then = [&] {
    a.close();
    b.close();
    EXPECT_EQ(clients.send(serverAddress(), bytes("c"), other, c, &held), 0);
    loop.stop();
  };
  run();
  EXPECT_EQ(handler.received.size(), 1u);
  EXPECT_TRUE(other.received.empty()) << "an old socket's event is not its successor's";
  EXPECT_EQ(held, 1u);
}

TEST(LocalAddress, IsOneOfThisMachine) {
  EXPECT_TRUE(*isLocalAddress(IpAddress::parse("127.0.0.1").value()));
  EXPECT_TRUE(*isLocalAddress(IpAddress::parse("127.3.2.1").value()));
  EXPECT_TRUE(*isLocalAddress(IpAddress::parse("::1").value()));
  EXPECT_FALSE(*isLocalAddress(IpAddress::parse("192.0.2.1").value()));
  EXPECT_FALSE(*isLocalAddress(IpAddress::parse("2001:db8::1").value()));
}

}  // namespace
}  // namespace idetcd::net
