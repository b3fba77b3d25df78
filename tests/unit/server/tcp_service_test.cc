#include "server/tcp_service.h"

#include <chrono>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "dns_packets.h"
#include "running_server.h"

namespace idetcd::server {
namespace {

using net::test::Socket;
using net::test::tcpClient;
using std::chrono::milliseconds;
using test::Answer;
using test::framed;
using test::Names;
using test::query;

// However long the test stands still.
const resolve::TcpLimits kPatient{.idle = std::chrono::minutes(10)};

// One message without its length; empty at the end of the stream.
std::string receiveMessage(Socket& client) {
  const std::string prefix = client.receiveExactly(2);
  if (prefix.size() < 2) return {};
  return client.receiveExactly(dns::load16(reinterpret_cast<const uint8_t*>(prefix.data())));
}

void expectAnswer(Socket& client, uint16_t id, uint8_t number) {
  const std::string message = receiveMessage(client);
  ASSERT_GE(message.size(), dns::kHeaderSize);
  const Answer answer(message);
  EXPECT_EQ(answer.id, id);
  EXPECT_EQ(answer.answers, 1);
  EXPECT_EQ(answer.last_octet, number);
}

TEST(TcpService, AnswersOneAfterTheOther) {
  test::RunningServer server;
  Socket client = tcpClient(server.tcpAddress());
  for (uint8_t i = 1; i <= 20; ++i) {
    client.send(framed(query(i, Names::nameOf(i))));
    expectAnswer(client, i, i);
  }
  EXPECT_EQ(server.counters().tcp_accepted.value(), 1u);
  EXPECT_EQ(server.counters().tcp_received.value(), 20u);
}

TEST(TcpService, AnswersAPipeline) {
  constexpr uint16_t kCount = 3000;
  test::RunningServer server;
  Socket client = tcpClient(server.tcpAddress());
  std::string pipeline;
  for (uint16_t i = 0; i < kCount; ++i) pipeline += framed(query(i, Names::nameOf(1 + i % 200)));
  std::thread writer([&] { client.send(pipeline); });
  for (uint16_t i = 0; i < kCount; ++i) expectAnswer(client, i, static_cast<uint8_t>(1 + i % 200));
  writer.join();
}

TEST(TcpService, PutsTogetherWhatComesInPieces) {
  test::RunningServer server;
  const std::string two = framed(query(1, Names::nameOf(1))) + framed(query(2, Names::nameOf(2)));
  for (const size_t piece : {1, 2, 3, 5, 13, 40}) {
    Socket client = tcpClient(server.tcpAddress());
    for (size_t i = 0; i < two.size(); i += piece) {
      client.send(std::string_view(two).substr(i, piece));
      server.onLoop([] {});  // so that the pieces are read apart
    }
    expectAnswer(client, 1, 1);
    expectAnswer(client, 2, 2);
  }
}

TEST(TcpService, AnswersBehindAHalfClose) {
  test::RunningServer server;
  Socket client = tcpClient(server.tcpAddress());
  client.send(framed(query(1, Names::nameOf(1))) + framed(query(2, Names::nameOf(2))));
  ::shutdown(client.fd(), SHUT_WR);
  expectAnswer(client, 1, 1);
  expectAnswer(client, 2, 2);
  EXPECT_TRUE(client.isClosedByPeer());
}

TEST(TcpService, ClosesWhatDoesNotSpeakDns) {
  test::RunningServer server;
  std::string response = query(1, Names::nameOf(1));
  response[2] = static_cast<char>(0x80);
  for (const std::string& junk : {std::string("\0\0", 2), std::string("\0\x0b", 2), framed(response)}) {
    Socket client = tcpClient(server.tcpAddress());
    client.send(framed(query(1, Names::nameOf(1))) + junk + framed(query(2, Names::nameOf(2))));
    expectAnswer(client, 1, 1);  // what came before is answered
    EXPECT_TRUE(client.isClosedByPeer());
  }
}

TEST(TcpService, ClosesIdleConnections) {
  test::RunningServer server("127.0.0.1", {.of_clients = {.idle = milliseconds(50)}});
  Socket silent = tcpClient(server.tcpAddress());
  Socket slow = tcpClient(server.tcpAddress());
  slow.send(std::string_view("\0", 1));  // a query that never gets complete keeps nothing open
  EXPECT_TRUE(silent.isClosedByPeer());
  EXPECT_TRUE(slow.isClosedByPeer());
  EXPECT_EQ(server.counters().tcp_timed_out.value(), 2u);
}

// Of clients that send the beginnings of long messages and no more; one of them is only slow.
TEST(TcpService, HalfSentQueriesAreBounded) {
  test::RunningServer server("127.0.0.1", {.max_input = size_t{1} << 18});
  Socket slow = tcpClient(server.tcpAddress());
  const std::string slow_query = framed(query(1, Names::nameOf(1)));
  slow.send(slow_query.substr(0, 20));
  std::vector<Socket> half_sent;
  const std::string begin = std::string("\xff\xff", 2) + std::string(60000, 'x');
  for (int i = 0; i < 12; ++i) {
    half_sent.push_back(tcpClient(server.tcpAddress()));
    half_sent.back().send(begin);
  }
  // There is room for four of them; which four depends on the order in which their bytes arrive.
  while (server.counters().tcp_evicted.value() < 8) server.onLoop([] {});
  slow.send(slow_query.substr(20));
  expectAnswer(slow, 1, 1);
  EXPECT_EQ(std::ranges::count_if(half_sent, [](const Socket& client) { return client.isReadable(0); }), 8);
}

TEST(TcpService, WhatIsAnsweredTakesNoMemory) {
  test::RunningServer server("127.0.0.1", {.max_input = size_t{1} << 18});
  std::vector<Socket> clients;
  const std::string small = query(1, Names::nameOf(1));
  std::string large = small.substr(0, 10) + std::string("\0\1", 2) + small.substr(12);  // with an OPT of 60,000 bytes
  large +=
      std::string("\0\0\x29\4\xd0\0\0\0\0", 9) + std::string("\xea\x60\xff\xfe\xea\x5c", 6) + std::string(59996, 'x');
  for (int i = 0; i < 12; ++i) {
    clients.push_back(tcpClient(server.tcpAddress()));
    clients.back().send(framed(large).substr(0, 50000));
    server.onLoop([] {});
    clients.back().send(framed(large).substr(50000));
    EXPECT_EQ(Answer(receiveMessage(clients.back())).answers, 1);
  }
  EXPECT_EQ(server.counters().tcp_evicted.value(), 0u);
}

TEST(TcpService, AQueryStartsTheIdleTimeAnew) {
  constexpr milliseconds kIdle{4000};
  test::RunningServer server("127.0.0.1", {.of_clients = {.idle = kIdle}});
  Socket client = tcpClient(server.tcpAddress());
  const auto start = std::chrono::steady_clock::now();
  uint8_t asked = 0;
  while (std::chrono::steady_clock::now() - start < kIdle + kIdle / 2) {
    ++asked;
    client.send(framed(query(asked, Names::nameOf(asked))));
    expectAnswer(client, asked, asked);
    client.isReadable(30);  // a pause
    if (HasFailure()) return;
  }
  EXPECT_TRUE(client.isClosedByPeer());
}

TEST(TcpService, MakesRoomByClosingTheLongestIdle) {
  test::RunningServer server("127.0.0.1", {.of_clients = kPatient, .max_connections = 3});
  std::vector<Socket> clients;
  for (uint8_t i = 1; i <= 3; ++i) {
    clients.push_back(tcpClient(server.tcpAddress()));
    clients.back().send(framed(query(i, Names::nameOf(i))));
    expectAnswer(clients.back(), i, i);
  }
  clients[0].send(framed(query(9, Names::nameOf(9))));  // the second is now the longest idle
  expectAnswer(clients[0], 9, 9);
  Socket newcomer = tcpClient(server.tcpAddress());
  newcomer.send(framed(query(4, Names::nameOf(4))));
  expectAnswer(newcomer, 4, 4);
  EXPECT_TRUE(clients[1].isClosedByPeer());
  for (const size_t i : {size_t{0}, size_t{2}}) {
    clients[i].send(framed(query(5, Names::nameOf(5))));
    expectAnswer(clients[i], 5, 5);
  }
  EXPECT_EQ(server.counters().tcp_evicted.value(), 1u);
}

TEST(TcpService, WithoutADescriptorTheLongestIdleGivesWay) {
  const auto budget = net::DescriptorBudget::make(8);
  test::RunningServer server("127.0.0.1", {.of_clients = kPatient}, budget->account(0));
  constexpr size_t kClients = 8 - 2 - 1;  // what is not guaranteed to others
  std::vector<Socket> clients;
  for (size_t i = 0; i < kClients + 1; ++i) {
    clients.push_back(tcpClient(server.tcpAddress()));
    clients.back().send(framed(query(1, Names::nameOf(1))));
    expectAnswer(clients.back(), 1, 1);
  }
  EXPECT_TRUE(clients.front().isClosedByPeer());
  EXPECT_EQ(server.counters().tcp_evicted.value(), 1u);
  EXPECT_EQ(budget->used(), kClients);
}

// Whichever listener it has come to.
TEST(TcpService, AnotherListenersClientsGiveWay) {
  const auto budget = net::DescriptorBudget::make(8);
  test::RunningServer server("127.0.0.1", {.of_clients = kPatient}, budget->account(0));
  const SocketAddress second = server.listenToo();
  std::vector<Socket> clients;
  for (size_t i = 0; i < 5; ++i) {
    clients.push_back(tcpClient(server.tcpAddress()));
    clients.back().send(framed(query(1, Names::nameOf(1))));
    expectAnswer(clients.back(), 1, 1);
  }
  std::vector<Socket> others;
  for (size_t i = 0; i < 2; ++i) {
    others.push_back(tcpClient(second));
    others.back().send(framed(query(2, Names::nameOf(2))));
    expectAnswer(others.back(), 2, 2);
    EXPECT_TRUE(clients[i].isClosedByPeer());
  }
  for (size_t i = 2; i < 5; ++i) {
    clients[i].send(framed(query(3, Names::nameOf(3))));
    expectAnswer(clients[i], 3, 3);
  }
  EXPECT_EQ(server.counters().tcp_evicted.value(), 2u);
  EXPECT_EQ(budget->used(), 5u);
}

// Opens `count` connections from `ip`, each of which has been answered.
std::vector<Socket> answeredClients(const test::RunningServer& server, std::string_view ip, size_t count) {
  std::vector<Socket> clients;
  for (size_t i = 0; i < count; ++i) {
    clients.push_back(net::test::tcpClientFrom(ip, server.tcpAddress()));
    clients.back().send(framed(query(1, Names::nameOf(1))));
    expectAnswer(clients.back(), 1, 1);
  }
  return clients;
}

TEST(TcpService, TheClientWithMostGivesWay) {
  test::RunningServer server("127.0.0.1", {.of_clients = kPatient, .max_connections = 10});
  std::vector<Socket> few = answeredClients(server, "127.0.0.2", 2);
  std::vector<Socket> many = answeredClients(server, "127.0.0.3", 40);
  std::vector<Socket> newcomers;
  for (const char* ip : {"127.0.0.4", "127.0.0.5", "127.0.0.6"}) {
    newcomers.push_back(std::move(answeredClients(server, ip, 1).front()));
  }
  for (Socket& client : few) {
    client.send(framed(query(2, Names::nameOf(2))));
    expectAnswer(client, 2, 2);
  }
  EXPECT_EQ(server.counters().tcp_evicted.value(), 35u);
  for (size_t i = 0; i < 35; ++i) EXPECT_TRUE(many[i].isClosedByPeer()) << i;
  for (size_t i = 35; i < 40; ++i) {
    many[i].send(framed(query(3, Names::nameOf(3))));
    expectAnswer(many[i], 3, 3);
  }
}

TEST(TcpService, IdleConnectionsAreClosedSoonerWhileThereAreMany) {
  constexpr milliseconds kIdle{10'000};
  test::RunningServer server("127.0.0.1", {.of_clients = {.idle = kIdle}, .max_connections = 8});
  const auto start = std::chrono::steady_clock::now();
  std::vector<Socket> clients = answeredClients(server, "127.0.0.1", 7);
  EXPECT_TRUE(clients.front().isClosedByPeer());
  const auto taken = std::chrono::steady_clock::now() - start;
  EXPECT_GE(taken, kIdle / 10);
  EXPECT_LT(taken, kIdle / 2);
  EXPECT_GE(server.counters().tcp_timed_out.value(), 1u);
  clients.back().send(framed(query(2, Names::nameOf(2))));
  expectAnswer(clients.back(), 2, 2);  // once there are less of them, they stay
}

// A loop without room, and without a session that could give way, says so at once.
TEST(TcpService, WhoFindsNoRoomAtAllIsClosed) {
  const auto budget = net::DescriptorBudget::make(0);
  test::RunningServer server("127.0.0.1", {.of_clients = kPatient}, budget->account(0));
  Socket client = tcpClient(server.tcpAddress());
  EXPECT_TRUE(client.isClosedByPeer());
  EXPECT_EQ(server.counters().tcp_refused.value(), 1u);
}

TEST(TcpService, DoesNotReadFromAClientThatDoesNotRead) {
  test::RunningServer server;
  Socket stubborn = tcpClient(server.tcpAddress());
  std::string burst;
  for (uint16_t i = 0; i < 2000; ++i) burst += framed(query(i, Names::nameOf(1)));
  size_t sent = 0;
  size_t left = 0;  // of the burst that is being sent
  for (;;) {        // until no byte more has been taken for a while
    const ssize_t n = ::send(stubborn.fd(), burst.data() + (burst.size() - (left == 0 ? burst.size() : left)),
                             left == 0 ? burst.size() : left, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      left = (left == 0 ? burst.size() : left) - static_cast<size_t>(n);
      continue;
    }
    pollfd writable{.fd = stubborn.fd(), .events = POLLOUT, .revents = 0};
    if (::poll(&writable, 1, 200) == 0) break;
  }
  EXPECT_LT(sent, size_t{64} << 20) << "the answers pile up";
  Socket other = tcpClient(server.tcpAddress());
  other.send(framed(query(1, Names::nameOf(1))));
  expectAnswer(other, 1, 1);
  // Once it reads, it gets every answer.
  for (size_t i = 0; i < sent / (burst.size() / 2000); ++i) {
    expectAnswer(stubborn, static_cast<uint16_t>(i % 2000), 1);
    if (HasFailure()) return;
  }
}

// Sends one burst after the other until the server closes the connection, or takes nothing for a long time. Returns how many
// bytes that were.
size_t sendUntilClosed(Socket& client, const std::string& burst) {
  size_t sent = 0;
  for (;;) {
    const ssize_t n = ::send(client.fd(), burst.data() + sent % burst.size(), burst.size() - sent % burst.size(),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      continue;
    }
    pollfd writable{.fd = client.fd(), .events = POLLOUT, .revents = 0};
    if (n == 0 || ::poll(&writable, 1, net::test::kTimeoutMs) == 0) return sent;
    if ((writable.revents & (POLLERR | POLLHUP)) != 0) return sent;
  }
}

TEST(TcpService, ClosesAClientThatDoesNotReadItsAnswers) {
  test::RunningServer server("127.0.0.1", {.of_clients = {.idle = kPatient.idle, .write = milliseconds(300)}});
  Socket stubborn = tcpClient(server.tcpAddress());
  std::string burst;
  for (uint16_t i = 0; i < 2000; ++i) burst += framed(query(i, Names::nameOf(1)));
  sendUntilClosed(stubborn, burst);
  pollfd gone{.fd = stubborn.fd(), .events = 0, .revents = 0};
  ASSERT_EQ(::poll(&gone, 1, net::test::kTimeoutMs), 1);
  EXPECT_NE(gone.revents & (POLLERR | POLLHUP), 0);
  EXPECT_EQ(server.counters().tcp_stalled.value(), 1u);
  EXPECT_EQ(server.counters().tcp_timed_out.value(), 0u);
}

// Those who ask over UDP do not wait until every connection has had its turn.
TEST(TcpService, UdpIsServedAmongBusyConnections) {
  constexpr size_t kConnections = 20;
  constexpr uint16_t kPipelined = 1000;
  test::RunningServer server;
  std::string pipeline;
  for (uint16_t i = 0; i < kPipelined; ++i) pipeline += framed(query(i, Names::nameOf(1)));
  std::vector<Socket> busy;
  for (size_t i = 0; i < kConnections; ++i) {
    busy.push_back(tcpClient(server.tcpAddress()));
    busy.back().send(framed(query(1, Names::nameOf(1))));
    expectAnswer(busy.back(), 1, 1);  // it is accepted
  }
  Socket udp = net::test::udpClient();
  server.onLoop([&] {  // all of it comes while the loop looks elsewhere, the datagram last
    for (Socket& client : busy) client.send(pipeline);
    udp.sendTo(server.udpAddress(), query(7, Names::nameOf(7)));
  });
  ASSERT_TRUE(busy[1].isReadable(net::test::kTimeoutMs));
  EXPECT_TRUE(udp.isReadable(0));
}

TEST(TcpService, ConnectionsMayGoWithTheService) {
  Socket client = [] {
    test::RunningServer server;
    Socket connected = tcpClient(server.tcpAddress());
    connected.send(framed(query(1, Names::nameOf(1))));
    expectAnswer(connected, 1, 1);
    return connected;
  }();
  EXPECT_TRUE(client.isClosedByPeer());
}

}  // namespace
}  // namespace idetcd::server
