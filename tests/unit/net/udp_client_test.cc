#include "net/udp_client.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "net/udp_socket.h"

namespace idetcd::net {
namespace {

using std::chrono::milliseconds;

std::span<const uint8_t> octets(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class UdpClientTest : public testing::Test {
 protected:
  struct Handler : UdpClientHandler {
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
    guard.start(milliseconds(5000));
    loop.run();
  }
  SocketAddress serverAddress() const { return server.localAddress(); }

  EventLoop loop;
  SecureRandom random;
  UdpSocket server = UdpSocket::bind({.ip = IpAddress::v4({127, 0, 0, 1})}, false).value();
  UdpBatch batch;
  UdpClients clients{loop, random};
  Handler handler;
};

TEST_F(UdpClientTest, ADatagramAndItsAnswers) {
  UdpClient client;
  ASSERT_EQ(clients.send(serverAddress(), octets("question"), handler, client), 0);
  EXPECT_TRUE(client.isOpen());
  EXPECT_EQ(clients.openCount(), 1u);
  ASSERT_EQ(batch.receive(server), 1u);
  EXPECT_EQ(std::string(batch.buffer(0), batch.buffer(0) + batch.size(0)), "question");
  for (const char* answer : {"one", "", "two"}) server.sendTo(batch.peer(0), octets(answer));
  handler.then = [this] {
    if (handler.received.size() == 3) loop.stop();
  };
  run();
  EXPECT_EQ(handler.received, (std::vector<std::string>{"one", "", "two"}));
  client.close();
  client.close();
  EXPECT_EQ(clients.openCount(), 0u);
}

TEST_F(UdpClientTest, EachHasAPortOfItsOwnThatIsSetAsideForClients) {
  std::set<uint16_t> ports;
  std::vector<UdpClient> open(200);
  for (auto& client : open) ASSERT_EQ(clients.send(serverAddress(), octets("x"), handler, client), 0);
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

TEST_F(UdpClientTest, EachHasAFreshPortWhenTheyFollowEachOther) {
  std::map<uint16_t, int> ports;
  int least = 65535;
  int most = 0;
  for (int i = 0; i < 500; ++i) {
    UdpClient client;
    ASSERT_EQ(clients.send(serverAddress(), octets("x"), handler, client), 0);
    ASSERT_EQ(batch.receive(server), 1u);
    ++ports[batch.sourcePort(0)];
    least = std::min<int>(least, batch.sourcePort(0));
    most = std::max<int>(most, batch.sourcePort(0));
  }
  // Of 500 draws out of 28,000 some four are the same as another one.
  EXPECT_GT(ports.size(), 480u);
  EXPECT_GT(most - least, 10000);
}

TEST_F(UdpClientTest, WhatComesForAFormerUserIsNotItsSuccessors) {
  UdpClient first;
  ASSERT_EQ(clients.send(serverAddress(), octets("first"), handler, first), 0);
  ASSERT_EQ(batch.receive(server), 1u);
  const UdpPeer former = batch.peer(0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(server.sendTo(former, octets("in time, and not read")));
  first.close();
  ASSERT_TRUE(server.sendTo(former, octets("while nobody uses it")));

  Handler other;
  UdpClient second;
  ASSERT_EQ(clients.send(serverAddress(), octets("second"), other, second), 0);
  ASSERT_EQ(batch.receive(server), 1u);
  ASSERT_TRUE(server.sendTo(former, octets("too late")));
  ASSERT_TRUE(server.sendTo(batch.peer(0), octets("answer")));
  other.then = [this] { loop.stop(); };
  run();
  EXPECT_EQ(other.received, std::vector<std::string>{"answer"});
  EXPECT_TRUE(handler.received.empty());
}

TEST_F(UdpClientTest, TheNextIsNotToldOfARefusal) {
  SocketAddress nobody = serverAddress();
  {
    const auto closed = UdpSocket::bind({.ip = IpAddress::v4({127, 0, 0, 1})}, false).value();
    nobody = closed.localAddress();
  }
  for (int i = 0; i < 3; ++i) {
    {
      UdpClient refused;
      ASSERT_EQ(clients.send(nobody, octets("x"), handler, refused), 0);  // closed without having been read
    }
    UdpClient client;
    Handler other;
    ASSERT_EQ(clients.send(serverAddress(), octets("x"), other, client), 0);
    ASSERT_EQ(batch.receive(server), 1u);
    server.sendTo(batch.peer(0), octets("answer"));
    other.then = [this] { loop.stop(); };
    run();
    EXPECT_EQ(other.error, 0);
    EXPECT_EQ(other.received.size(), 1u);
  }
  EXPECT_EQ(handler.error, 0);
}

TEST_F(UdpClientTest, BothFamiliesInTurn) {
  UdpSocket server6 = UdpSocket::bind({.ip = IpAddress::parse("::1").value()}, false).value();
  for (int i = 0; i < 4; ++i) {
    UdpSocket& asked = i % 2 == 0 ? server : server6;
    UdpClient client;
    handler.received.clear();
    ASSERT_EQ(clients.send(asked.localAddress(), octets("x"), handler, client), 0);
    ASSERT_EQ(batch.receive(asked), 1u);
    asked.sendTo(batch.peer(0), octets("answer"));
    handler.then = [this] { loop.stop(); };
    run();
    EXPECT_EQ(handler.received.size(), 1u);
  }
}

TEST_F(UdpClientTest, ABudgetHolds) {
  const auto budget = std::make_shared<DescriptorBudget>(3);
  {
    UdpClients bounded(loop, random, budget);
    UdpClients other(loop, random, budget);
    UdpClient a, b, c, d;
    ASSERT_EQ(bounded.send(serverAddress(), octets("a"), handler, a), 0);
    ASSERT_EQ(bounded.send(serverAddress(), octets("b"), handler, b), 0);
    ASSERT_EQ(other.send(serverAddress(), octets("c"), handler, c), 0);
    EXPECT_EQ(budget->used(), 3u);
    EXPECT_EQ(other.send(serverAddress(), octets("d"), handler, d), EMFILE);
    EXPECT_FALSE(d.isOpen());
    EXPECT_EQ(budget->used(), 3u);
    b.close();
    EXPECT_EQ(bounded.send(serverAddress(), octets("d"), handler, d), 0) << "the kept socket is one of the three";
    EXPECT_EQ(budget->used(), 3u);
  }
  EXPECT_EQ(budget->used(), 0u);
  EXPECT_GT(DescriptorBudget::shareOfLimit(), 3u);
}

TEST_F(UdpClientTest, RefusalIsReported) {
  SocketAddress nobody = serverAddress();
  {
    const auto closed = UdpSocket::bind({.ip = IpAddress::v4({127, 0, 0, 1})}, false).value();
    nobody = closed.localAddress();
  }
  UdpClient client;
  ASSERT_EQ(clients.send(nobody, octets("x"), handler, client), 0);
  handler.then = [this] { loop.stop(); };
  run();
  EXPECT_EQ(handler.error, ECONNREFUSED);
}

TEST_F(UdpClientTest, WhatCannotBeSentIsAnError) {
  UdpClient client;
  EXPECT_EQ(clients.send({.ip = IpAddress::v4({255, 255, 255, 255}), .port = 53}, octets("x"), handler, client),
            EACCES);
  EXPECT_FALSE(client.isOpen());
  EXPECT_EQ(clients.openCount(), 0u);
}

TEST_F(UdpClientTest, AHandlerMayCloseAndOpenOthers) {
  // Both are readable in the same wake-up; whoever comes first closes both and opens another in the freed slot.
  UdpClient a, b, c;
  Handler other;
  ASSERT_EQ(clients.send(serverAddress(), octets("a"), handler, a), 0);
  ASSERT_EQ(clients.send(serverAddress(), octets("b"), handler, b), 0);
  ASSERT_EQ(batch.receive(server), 2u);
  for (size_t i = 0; i < 2; ++i) server.sendTo(batch.peer(i), octets("answer"));
  handler.then = [&] {
    a.close();
    b.close();
    EXPECT_EQ(clients.send(serverAddress(), octets("c"), other, c), 0);
    loop.stop();
  };
  run();
  EXPECT_EQ(handler.received.size(), 1u);
  EXPECT_TRUE(other.received.empty()) << "an old socket's event is not its successor's";
  EXPECT_EQ(clients.openCount(), 1u);
}

TEST_F(UdpClientTest, LocalAddresses) {
  EXPECT_TRUE(isLocalAddress(IpAddress::parse("127.0.0.1").value()));
  EXPECT_TRUE(isLocalAddress(IpAddress::parse("127.3.2.1").value()));
  EXPECT_TRUE(isLocalAddress(IpAddress::parse("::1").value()));
  EXPECT_FALSE(isLocalAddress(IpAddress::parse("192.0.2.1").value()));
  EXPECT_FALSE(isLocalAddress(IpAddress::parse("2001:db8::1").value()));
}

}  // namespace
}  // namespace idetcd::net
