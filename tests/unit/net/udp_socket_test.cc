#include "net/udp_socket.h"

#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "sockets.h"

namespace idetcd::net {
namespace {

using test::address;

bool hasIpv6() { return test::udpClient("::1").ok(); }

// Waits for the socket, then takes one batch.
size_t receive(UdpBatch& batch, const UdpSocket& socket) {
  pollfd readable{.fd = socket.fd(), .events = POLLIN, .revents = 0};
  if (::poll(&readable, 1, test::kTimeoutMs) != 1) return 0;
  return batch.receive(socket);
}

std::string textOf(UdpBatch& batch, size_t i) {
  return {reinterpret_cast<const char*>(batch.buffer(i)), batch.size(i)};
}

void write(UdpBatch& batch, size_t i, std::string_view text) {
  std::memcpy(batch.buffer(i), text.data(), text.size());
  batch.reply(i, text.size());
}

// An answer to one datagram sent from `client_ip` to `asked_ip` of a socket bound to `bound_ip`: where it came from.
std::optional<SocketAddress> answerComesFrom(std::string_view bound_ip, std::string_view asked_ip,
                                             std::string_view client_ip) {
  auto socket = UdpSocket::bind(address(bound_ip, 0), false);
  EXPECT_TRUE(socket.has_value());
  test::Socket client = test::udpClient(client_ip);
  const SocketAddress asked = address(asked_ip, socket->localAddress().port);
  EXPECT_TRUE(client.sendTo(asked, "question"));
  UdpBatch batch;
  EXPECT_EQ(receive(batch, *socket), 1u);
  EXPECT_EQ(textOf(batch, 0), "question");
  EXPECT_EQ(batch.sourcePort(0), client.localAddress().port);
  write(batch, 0, "answer");
  EXPECT_EQ(batch.flush(*socket), 0u);
  const auto answer = client.receive();
  EXPECT_TRUE(answer && answer->bytes == "answer");
  EXPECT_EQ(answer->from->port, asked.port);
  return answer->from;
}

TEST(UdpSocket, ReportsThePortItWasGiven) {
  const auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  ASSERT_TRUE(socket.has_value());
  EXPECT_GT(socket->localAddress().port, 0);
  EXPECT_FALSE(socket->isWildcard());
  EXPECT_FALSE(UdpSocket::bind(socket->localAddress(), false).has_value()) << "the address is taken";
}

TEST(UdpSocket, SeveralShareAnAddressIfTheyAllSaySo) {
  const auto first = UdpSocket::bind(address("127.0.0.1", 0), true);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(UdpSocket::bind(first->localAddress(), true).has_value());
  EXPECT_FALSE(UdpSocket::bind(first->localAddress(), false).has_value());
}

TEST(UdpSocket, AnAddressOfNobodyIsAnError) {
  EXPECT_FALSE(UdpSocket::bind(address("192.0.2.1", 0), false).has_value());
}

TEST(UdpSocket, IsMovedWithItsDescriptor) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  const int fd = socket->fd();
  const UdpSocket moved(std::move(*socket));
  EXPECT_EQ(moved.fd(), fd);
  EXPECT_GT(moved.localAddress().port, 0);
}

TEST(UdpSocket, CountsWhatItHasNoRoomFor) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  ASSERT_TRUE(socket);
  EXPECT_EQ(socket->overflowed(), 0u);
  const int small = 4096;
  ASSERT_EQ(setsockopt(socket->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
  test::Socket client = test::udpClient();
  constexpr size_t kSent = 200;
  for (size_t i = 0; i < kSent; ++i) ASSERT_TRUE(client.sendTo(socket->localAddress(), "question"));
  UdpBatch batch;
  size_t received = 0;
  while (const size_t n = batch.receive(*socket)) received += n;
  EXPECT_LT(received, kSent);
  EXPECT_EQ(received + socket->overflowed(), kSent);
}

TEST(UdpBatch, AnswersFromTheAddressThatWasAsked) {
  EXPECT_EQ(answerComesFrom("0.0.0.0", "127.0.0.1", "127.0.0.1")->ip.toString(), "127.0.0.1");
  EXPECT_EQ(answerComesFrom("0.0.0.0", "127.0.0.2", "127.0.0.1")->ip.toString(), "127.0.0.2");
  EXPECT_EQ(answerComesFrom("0.0.0.0", "127.0.0.1", "127.0.0.3")->ip.toString(), "127.0.0.1");
  EXPECT_EQ(answerComesFrom("0.0.0.0", "127.200.3.4", "127.0.0.9")->ip.toString(), "127.200.3.4");
  EXPECT_EQ(answerComesFrom("127.0.0.2", "127.0.0.2", "127.0.0.1")->ip.toString(), "127.0.0.2");
}

TEST(UdpBatch, AnswersOverIpv6) {
  if (!hasIpv6()) GTEST_SKIP() << "no IPv6 here";
  EXPECT_EQ(answerComesFrom("::", "::1", "::1")->ip.toString(), "::1");
  EXPECT_EQ(answerComesFrom("::1", "::1", "::1")->ip.toString(), "::1");
}

TEST(UdpBatch, EachAnswerOfAWildcardBatchHasItsOwnSource) {
  auto socket = UdpSocket::bind(address("0.0.0.0", 0), false);
  test::Socket client = test::udpClient();
  const uint16_t port = socket->localAddress().port;
  constexpr int kAddresses = 20;
  for (int i = 1; i <= kAddresses; ++i) {
    const std::string ip = "127.0.0." + std::to_string(i);
    client.sendTo(address(ip, port), ip);
  }
  UdpBatch batch;
  for (size_t answered = 0; answered < kAddresses;) {
    const size_t count = receive(batch, *socket);
    ASSERT_GT(count, 0u);
    for (size_t i = 0; i < count; ++i) batch.reply(i, batch.size(i));
    batch.flush(*socket);
    answered += count;
  }
  for (int i = 1; i <= kAddresses; ++i) {
    const auto answer = client.receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->bytes, answer->from->ip.toString());
  }
}

TEST(UdpBatch, SendsOnlyWhatIsRepliedInOrder) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  test::Socket client = test::udpClient();
  constexpr size_t kCount = UdpBatch::kCapacity;
  for (size_t i = 0; i < kCount; ++i) client.sendTo(socket->localAddress(), std::to_string(i));
  UdpBatch batch;
  ASSERT_EQ(receive(batch, *socket), kCount);
  for (size_t i = 0; i < kCount; i += 3) batch.reply(i, batch.size(i));  // two of three are dropped
  EXPECT_EQ(batch.flush(*socket), 0u);
  for (size_t i = 0; i < kCount; i += 3) EXPECT_EQ(client.receive()->bytes, std::to_string(i));
  EXPECT_FALSE(client.isReadable(0));
}

TEST(UdpBatch, TakesNoMoreThanItHolds) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  test::Socket client = test::udpClient();
  for (size_t i = 0; i < UdpBatch::kCapacity + 1; ++i) client.sendTo(socket->localAddress(), "x");
  UdpBatch batch;
  EXPECT_EQ(receive(batch, *socket), UdpBatch::kCapacity);
  EXPECT_EQ(receive(batch, *socket), 1u);
  EXPECT_EQ(batch.receive(*socket), 0u);
}

TEST(UdpBatch, IsAsNewAfterEachBatch) {
  auto socket = UdpSocket::bind(address("0.0.0.0", 0), false);
  test::Socket v4 = test::udpClient();
  UdpBatch batch;
  for (int round = 0; round < 3; ++round) {  // long ones, short ones, and none: nothing of a batch stays
    for (size_t i = 0; i < 5; ++i) v4.sendTo(address("127.0.0.2", socket->localAddress().port), std::string(1000, 'l'));
    ASSERT_EQ(receive(batch, *socket), 5u);
    batch.reply(4, 1000);
    batch.flush(*socket);
    EXPECT_EQ(v4.receive()->bytes.size(), 1000u);
    v4.sendTo(address("127.0.0.1", socket->localAddress().port), "short");
    ASSERT_EQ(receive(batch, *socket), 1u);
    EXPECT_EQ(textOf(batch, 0), "short");
    batch.reply(0, 5);
    batch.flush(*socket);
    const auto answer = v4.receive();
    EXPECT_EQ(answer->bytes, "short");
    EXPECT_EQ(answer->from->ip.toString(), "127.0.0.1");
    EXPECT_EQ(batch.receive(*socket), 0u);
  }
}

TEST(UdpBatch, ACutOffDatagramSaysSo) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  test::Socket client = test::udpClient();
  client.sendTo(socket->localAddress(), std::string(UdpBatch::kBufferSize + 1000, 'x'));
  client.sendTo(socket->localAddress(), "fits");
  UdpBatch batch;
  ASSERT_EQ(receive(batch, *socket), 2u);
  EXPECT_TRUE(batch.isTruncated(0));
  EXPECT_FALSE(batch.isTruncated(1));
  EXPECT_LE(batch.size(0), UdpBatch::kBufferSize + 192);
}

TEST(UdpBatch, AnAnswerThatCannotBeSentDoesNotHoldTheOthersBack) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  test::Socket client = test::udpClient();
  for (const char* text : {"a", "b", "c"}) client.sendTo(socket->localAddress(), text);
  UdpBatch batch;
  ASSERT_EQ(receive(batch, *socket), 3u);
  for (size_t i = 0; i < 3; ++i) batch.reply(i, batch.size(i));
  // Port 0: sendmmsg stops there with EINVAL.
  const_cast<sockaddr_in*>(reinterpret_cast<const sockaddr_in*>(batch.source(1)))->sin_port = 0;
  EXPECT_EQ(batch.flush(*socket), 1u);
  EXPECT_EQ(client.receive()->bytes, "a");
  EXPECT_EQ(client.receive()->bytes, "c");
}

TEST(UdpBatch, AClosedClientIsNoErrorForTheNext) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  UdpBatch batch;
  {
    test::Socket gone = test::udpClient();
    gone.sendTo(socket->localAddress(), "bye");
    ASSERT_EQ(receive(batch, *socket), 1u);
  }
  batch.reply(0, 3);
  batch.flush(*socket);
  test::Socket client = test::udpClient();
  client.sendTo(socket->localAddress(), "hello");
  size_t count = 0;
  for (int tries = 0; tries < 3 && count == 0; ++tries)
    count = receive(batch, *socket);  // an ICMP error may come first
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(textOf(batch, 0), "hello");
}

}  // namespace
}  // namespace idetcd::net
