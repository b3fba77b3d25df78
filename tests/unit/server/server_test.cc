#include "server/server.h"

#include <barrier>
#include <cstddef>
#include <future>
#include <random>
#include <set>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "dns_packets.h"
#include "net/local_addresses.h"
#include "running_server.h"
#include "support/eventually.h"
#include "support/free_port.h"
#include "support/metric_values.h"

namespace idetcd::server {
namespace {

using test::Answer;
using test::Names;
using test::query;
using test_support::freePort;

// Runs the loop of a server's first worker.
class ServerTest : public ::testing::Test {
 protected:
  Result<void> open(size_t workers, const std::vector<SocketAddress>& addresses) {
    std::vector<Listen> listens;
    for (const SocketAddress& address : addresses) {
      listens.push_back({.address = address, .workers = workers, .make_router = [this](size_t, net::EventLoop&) {
                           return names_.router;
                         }});
    }
    return server_.open(listens);
  }
  Result<void> open(size_t workers, bool any_address = false) {
    return open(workers, any_address ? net::anyAddresses(port_) : std::vector{net::test::address("127.0.0.1", port_)});
  }
  RouterFactory router() {
    return [this](size_t, net::EventLoop&) { return names_.router; };
  }
  void start() {
    server_.start();
    thread_ = std::thread([this] { loop_.run(); });
  }
  void TearDown() override {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    server_.close();
  }

  Names names_;
  net::EventLoop loop_;
  metrics::Registry registry_;
  Server server_{loop_, names_.epochs, net::DescriptorBudget::unlimited(), registry_.scope()};
  const uint16_t port_ = freePort();
  std::thread thread_;
};

TEST_F(ServerTest, AWildcardAndOneOfItsAddressesShareAPort) {
  std::vector<SocketAddress> addresses = net::anyAddresses(port_);
  addresses.push_back(net::test::address("127.0.0.1", port_));
  const auto opened = open(1, addresses);
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  Server other(loop_, names_.epochs);
  EXPECT_FALSE(other
                   .open({{.address = net::test::address("127.0.0.1", port_),
                           .make_router = [this](size_t, net::EventLoop&) { return names_.router; }}})
                   .has_value())
      << "but not with another process";
  other.close();
}

// A reload that adds or takes away a `bind`: for a moment both are open.
TEST_F(ServerTest, AWildcardAndOneOfItsAddressesReplaceEachOther) {
  for (const size_t workers : {1u, 2u}) {
    const SocketAddress one = net::test::address("127.0.0.1", freePort());
    ASSERT_TRUE(open(workers, {one}).has_value());
    for (int i = 0; i < 2; ++i) {
      const auto all = open(workers, net::anyAddresses(one.port));
      ASSERT_TRUE(all.has_value()) << all.error().message;
      EXPECT_FALSE(net::UdpSocket::bind(net::test::address("127.0.0.2", one.port), false).has_value());
      const auto back = open(workers, {one});
      ASSERT_TRUE(back.has_value()) << back.error().message;
      EXPECT_TRUE(net::UdpSocket::bind(net::test::address("127.0.0.2", one.port), false).has_value()) << "it is free";
    }
  }
}

TEST_F(ServerTest, EveryClientOfTwoWorkersIsAnswered) {
  constexpr int kClients = 64;
  ASSERT_TRUE(open(2).has_value());
  start();
  const SocketAddress server = net::test::address("127.0.0.1", port_);
  for (int i = 0; i < kClients; ++i) {
    net::test::Socket udp = net::test::udpClient();
    ASSERT_TRUE(udp.sendTo(server, query(1, Names::nameOf(1 + i))));
    const auto answer = udp.receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ(Answer(answer->bytes).last_octet, 1 + i);
    net::test::Socket tcp = net::test::tcpClient(server);
    tcp.send(test::framed(query(2, Names::nameOf(1 + i))));
    EXPECT_EQ(tcp.receiveExactly(2).size(), 2u);
  }
  ASSERT_EQ(server_.workers().size(), 2u);
  // While the loops go on: a batch is counted at its end, when its answers have left.
  EXPECT_TRUE(eventually([&] { return test_support::sumOf(registry_, "idetcd_udp_sent_total") == kClients; }));
  EXPECT_TRUE(eventually([&] { return test_support::sumOf(registry_, "idetcd_tcp_received_total") == kClients; }));
  const auto values = test_support::valuesOf(registry_);
  EXPECT_GT(values.at("idetcd_udp_sent_total{worker=\"0\"}"), 0);  // 64 ports all on one of two: once in 2^63
  EXPECT_GT(values.at("idetcd_udp_sent_total{worker=\"1\"}"), 0);
  EXPECT_EQ(values.at("idetcd_tcp_unread_bytes"), 0);
}

TEST_F(ServerTest, SeveralWorkersDoNotShareWithAStranger) {
  const auto stranger = net::UdpSocket::bind(net::test::address("127.0.0.1", port_), true);
  ASSERT_TRUE(stranger.has_value());
  const auto opened = open(2);
  ASSERT_FALSE(opened.has_value());
  EXPECT_NE(opened.error().message.find(std::to_string(port_)), std::string::npos) << opened.error().message;
}

// Two of the same user that start at once: one has the port, the other gets an error.
TEST_F(ServerTest, OfTwoServersAtOnceOneHasThePort) {
  constexpr int kRounds = 50;
  int opened = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::barrier together(2);
    const auto open = [&] {
      net::EventLoop loop;
      Server server(loop, names_.epochs);
      together.arrive_and_wait();
      const bool ok = server
                          .open({{.address = net::test::address("127.0.0.1", port_),
                                  .workers = 2,
                                  .make_router = [this](size_t, net::EventLoop&) { return names_.router; }}})
                          .has_value();
      together.arrive_and_wait();
      server.close();
      return ok ? 1 : 0;
    };
    auto one = std::async(std::launch::async, open);
    auto other = std::async(std::launch::async, open);
    const int have_it = one.get() + other.get();
    ASSERT_LE(have_it, 1) << "round " << round;
    opened += have_it;
  }
  EXPECT_GT(opened, 0);
}

TEST_F(ServerTest, ATakenTcpPortIsNamed) {
  net::test::Socket taken(SOCK_STREAM, net::test::address("127.0.0.1", port_));
  ASSERT_EQ(::listen(taken.fd(), 1), 0);
  const auto opened = open(1);
  ASSERT_FALSE(opened.has_value());
  EXPECT_TRUE(opened.error().message.starts_with("listen tcp 127.0.0.1:" + std::to_string(port_) +
                                                 ": Address already in use: this process (pid "))
      << opened.error().message;
  EXPECT_NE(opened.error().message.find("`bind`"), std::string::npos);
}

TEST_F(ServerTest, AnyAddressIsBothFamilies) {
  ASSERT_TRUE(open(1, true).has_value());
  start();
  for (const char* ip : {"127.0.0.1", "127.0.0.2", "::1"}) {
    net::test::Socket client = net::test::udpClient(ip);
    if (!client.ok()) continue;  // no IPv6 here
    client.sendTo(net::test::address(ip, port_), query(1, Names::nameOf(9)));
    const auto answer = client.receive();
    ASSERT_TRUE(answer) << ip;
    EXPECT_EQ(answer->from->ip.toString(), ip);
    EXPECT_EQ(Answer(answer->bytes).last_octet, 9);
  }
}

// As a reload does: what belongs to a loop is made on its thread, and one that is slow holds up no other.
TEST_F(ServerTest, GoesOverToOtherListensBesideTheLoops) {
  ASSERT_TRUE(open(2).has_value());
  start();
  std::promise<void> asked;
  std::promise<void> may_go_on;
  const auto make_router = [&](size_t worker, net::EventLoop& loop) {
    EXPECT_TRUE(loop.isLoopThread()) << worker;
    if (worker == 1) {
      asked.set_value();
      may_go_on.get_future().wait();
    }
    return names_.router;
  };
  auto opening = std::async(std::launch::async, [&] {
    return server_.open(
        {{.address = net::test::address("127.0.0.1", port_), .workers = 2, .make_router = make_router}});
  });
  asked.get_future().wait();
  std::promise<void> done;
  loop_.post([&done] { done.set_value(); });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  may_go_on.set_value();
  const auto opened = opening.get();
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
}

TEST_F(ServerTest, WhatAFailedOpenHasMadeEndsBesideTheLoops) {
  ASSERT_TRUE(open(1).has_value());
  start();
  const SocketAddress taken = net::test::address("127.0.0.1", freePort());
  const net::test::Socket stranger(SOCK_DGRAM, taken);
  auto reload = std::async(std::launch::async, [&] {
    const auto opened = server_.open({{.address = net::test::address("127.0.0.1", port_), .make_router = router()},
                                      {.address = taken, .workers = 3, .make_router = router()}});
    server_.closeWorkers(1);
    return opened.has_value();
  });
  EXPECT_FALSE(reload.get());
  EXPECT_EQ(server_.workers().size(), 1u);
  net::test::Socket udp = net::test::udpClient();
  ASSERT_TRUE(udp.sendTo(net::test::address("127.0.0.1", port_), query(1, Names::nameOf(1))));
  EXPECT_TRUE(udp.receive()) << "as before";
}

TEST_F(ServerTest, ClosesEverything) {
  ASSERT_TRUE(open(2).has_value());
  start();
  net::test::Socket client = net::test::tcpClient(net::test::address("127.0.0.1", port_));
  loop_.stop();
  thread_.join();
  server_.close();
  EXPECT_TRUE(net::UdpSocket::bind(net::test::address("127.0.0.1", port_), false).has_value()) << "the port is free";
}

}  // namespace
}  // namespace idetcd::server
