#include "net/udp_socket.h"

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/file_descriptor.h"
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

// How a batch reads: for good, or copies of what stays in the socket until it is answered.
enum class Reading { kTakes, kKeeps };

class UdpBatchTest : public ::testing::TestWithParam<Reading> {
 protected:
  // A batch that reads so.
  static UdpBatch batchOf(const UdpSocket& socket) {
    UdpBatch batch;
    if (GetParam() == Reading::kKeeps) batch.keepUntilFlush(socket);
    return batch;
  }
  static std::optional<SocketAddress> answerComesFrom(std::string_view bound_ip, std::string_view asked_ip,
                                                      std::string_view client_ip);
};

INSTANTIATE_TEST_SUITE_P(Ways, UdpBatchTest, ::testing::Values(Reading::kTakes, Reading::kKeeps),
                         [](const auto& way) { return way.param == Reading::kTakes ? "Takes" : "Keeps"; });

// An answer to one datagram sent from `client_ip` to `asked_ip` of a socket bound to `bound_ip`: where it came from.
std::optional<SocketAddress> UdpBatchTest::answerComesFrom(std::string_view bound_ip, std::string_view asked_ip,
                                                           std::string_view client_ip) {
  auto socket = UdpSocket::bind(address(bound_ip, 0), false);
  EXPECT_TRUE(socket.has_value());
  test::Socket client = test::udpClient(client_ip);
  const SocketAddress asked = address(asked_ip, socket->localAddress().port);
  UdpBatch batch = batchOf(*socket);
  EXPECT_TRUE(client.sendTo(asked, "question"));
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

TEST_P(UdpBatchTest, AnswersFromTheAddressThatWasAsked) {
  EXPECT_EQ(answerComesFrom("0.0.0.0", "127.0.0.1", "127.0.0.1")->ip.toString(), "127.0.0.1");
  EXPECT_EQ(answerComesFrom("0.0.0.0", "127.0.0.2", "127.0.0.1")->ip.toString(), "127.0.0.2");
  EXPECT_EQ(answerComesFrom("0.0.0.0", "127.0.0.1", "127.0.0.3")->ip.toString(), "127.0.0.1");
  EXPECT_EQ(answerComesFrom("0.0.0.0", "127.200.3.4", "127.0.0.9")->ip.toString(), "127.200.3.4");
  EXPECT_EQ(answerComesFrom("127.0.0.2", "127.0.0.2", "127.0.0.1")->ip.toString(), "127.0.0.2");
}

TEST_P(UdpBatchTest, AnswersOverIpv6) {
  if (!hasIpv6()) GTEST_SKIP() << "no IPv6 here";
  EXPECT_EQ(answerComesFrom("::", "::1", "::1")->ip.toString(), "::1");
  EXPECT_EQ(answerComesFrom("::1", "::1", "::1")->ip.toString(), "::1");
}

TEST_P(UdpBatchTest, EachAnswerOfAWildcardBatchHasItsOwnSource) {
  auto socket = UdpSocket::bind(address("0.0.0.0", 0), false);
  UdpBatch batch = batchOf(*socket);
  test::Socket client = test::udpClient();
  const uint16_t port = socket->localAddress().port;
  constexpr int kAddresses = 20;
  for (int i = 1; i <= kAddresses; ++i) {
    const std::string ip = "127.0.0." + std::to_string(i);
    client.sendTo(address(ip, port), ip);
  }
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

TEST_P(UdpBatchTest, SendsOnlyWhatIsRepliedInOrder) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  UdpBatch batch = batchOf(*socket);
  test::Socket client = test::udpClient();
  constexpr size_t kCount = UdpBatch::kCapacity;
  for (size_t i = 0; i < kCount; ++i) client.sendTo(socket->localAddress(), std::to_string(i));
  ASSERT_EQ(receive(batch, *socket), kCount);
  for (size_t i = 0; i < kCount; i += 3) batch.reply(i, batch.size(i));  // two of three are dropped
  EXPECT_EQ(batch.flush(*socket), 0u);
  for (size_t i = 0; i < kCount; i += 3) EXPECT_EQ(client.receive()->bytes, std::to_string(i));
  EXPECT_FALSE(client.isReadable(0));
}

TEST_P(UdpBatchTest, TakesNoMoreThanItHolds) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  UdpBatch batch = batchOf(*socket);
  test::Socket client = test::udpClient();
  for (size_t i = 0; i < UdpBatch::kCapacity + 1; ++i) client.sendTo(socket->localAddress(), "x");
  EXPECT_EQ(receive(batch, *socket), UdpBatch::kCapacity);
  EXPECT_EQ(receive(batch, *socket), 1u);
  EXPECT_EQ(batch.receive(*socket), 0u);
}

TEST_P(UdpBatchTest, IsAsNewAfterEachBatch) {
  auto socket = UdpSocket::bind(address("0.0.0.0", 0), false);
  UdpBatch batch = batchOf(*socket);
  test::Socket v4 = test::udpClient();
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

TEST_P(UdpBatchTest, ACutOffDatagramSaysSo) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  UdpBatch batch = batchOf(*socket);
  test::Socket client = test::udpClient();
  client.sendTo(socket->localAddress(), std::string(UdpBatch::kBufferSize + 1000, 'x'));
  client.sendTo(socket->localAddress(), "fits");
  ASSERT_EQ(receive(batch, *socket), 2u);
  EXPECT_TRUE(batch.isTruncated(0));
  EXPECT_FALSE(batch.isTruncated(1));
  EXPECT_LE(batch.size(0), UdpBatch::kBufferSize + 192);
}

TEST_P(UdpBatchTest, AnAnswerThatCannotBeSentDoesNotHoldTheOthersBack) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  UdpBatch batch = batchOf(*socket);
  test::Socket client = test::udpClient();
  for (const char* text : {"a", "b", "c"}) client.sendTo(socket->localAddress(), text);
  ASSERT_EQ(receive(batch, *socket), 3u);
  for (size_t i = 0; i < 3; ++i) batch.reply(i, batch.size(i));
  // Port 0: sendmmsg stops there with EINVAL.
  const_cast<sockaddr_in*>(reinterpret_cast<const sockaddr_in*>(batch.source(1)))->sin_port = 0;
  EXPECT_EQ(batch.flush(*socket), 1u);
  EXPECT_EQ(client.receive()->bytes, "a");
  EXPECT_EQ(client.receive()->bytes, "c");
}

TEST_P(UdpBatchTest, AClosedClientIsNoErrorForTheNext) {
  auto socket = UdpSocket::bind(address("127.0.0.1", 0), false);
  UdpBatch batch = batchOf(*socket);
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

// --- what stays in the socket until it is answered ---

class KeptUntilFlush : public ::testing::Test {
 protected:
  // As a process that starts has it.
  UdpBatch nextBatch() {
    UdpBatch batch;
    batch.keepUntilFlush(socket_);
    return batch;
  }
  void send(const std::vector<std::string>& all) {
    for (const std::string& one : all) ASSERT_TRUE(client_.sendTo(socket_.localAddress(), one));
  }
  std::vector<std::string> received(UdpBatch& batch) {
    std::vector<std::string> all;
    const size_t count = receive(batch, socket_);
    for (size_t i = 0; i < count; ++i) all.push_back(textOf(batch, i));
    return all;
  }
  bool isEmpty() const { return !socket_.isReadable(); }

  using Texts = std::vector<std::string>;
  UdpSocket socket_ = std::move(*UdpSocket::bind(address("127.0.0.1", 0), false));
  test::Socket client_ = test::udpClient();
};

TEST_F(KeptUntilFlush, WhatIsNotAnsweredIsThereForTheNext) {
  UdpBatch killed = nextBatch();
  send({"a", "b"});
  EXPECT_EQ(received(killed), (Texts{"a", "b"}));
  send({"c"});
  UdpBatch next = nextBatch();
  EXPECT_EQ(received(next), (Texts{"a", "b", "c"}));
  next.flush(socket_);
  EXPECT_TRUE(isEmpty());
  send({"d"});
  EXPECT_EQ(received(next), Texts{"d"});
}

TEST_F(KeptUntilFlush, WhatIsAnsweredIsNotReadAgain) {
  UdpBatch batch = nextBatch();
  send({"a", "b"});
  EXPECT_EQ(received(batch), (Texts{"a", "b"}));
  send({"c"});  // while those are answered
  batch.reply(1, 1);
  batch.flush(socket_);
  EXPECT_EQ(client_.receive()->bytes, "b");
  EXPECT_EQ(received(batch), Texts{"c"});
  batch.flush(socket_);
  EXPECT_TRUE(isEmpty());
  EXPECT_EQ(batch.receive(socket_), 0u);
}

TEST_F(KeptUntilFlush, WhatAProcessHasEndedOverIsReadForGood) {
  UdpBatch crashed = nextBatch();
  send({"a", "crash"});
  EXPECT_EQ(received(crashed), (Texts{"a", "crash"}));
  UdpBatch crashed_too = nextBatch();
  EXPECT_EQ(received(crashed_too), (Texts{"a", "crash"}));
  send({"b"});
  UdpBatch next = nextBatch();
  EXPECT_EQ(received(next), Texts{"b"});
  UdpBatch after_a_kill = nextBatch();
  EXPECT_EQ(received(after_a_kill), Texts{"b"});
}

TEST_F(KeptUntilFlush, TheLengthOfADatagramDoesNotMatter) {
  UdpBatch batch = nextBatch();
  const std::string full(UdpBatch::kBufferSize, 'f');
  const std::string longer(UdpBatch::kBufferSize + 1000, 'l');
  for (int round = 0; round < 2; ++round) {
    send({"", "a", "", "", full, longer, "b", longer, ""});
    ASSERT_EQ(receive(batch, socket_), 9u);
    const std::string cut(UdpBatch::kBufferSize, 'l');
    const Texts expected{"", "a", "", "", full, cut, "b", cut, ""};
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(textOf(batch, i), expected[i]) << i;
      EXPECT_EQ(batch.isTruncated(i), i == 5 || i == 7) << i;
    }
    batch.flush(socket_);
    EXPECT_TRUE(isEmpty());
  }
}

TEST_F(KeptUntilFlush, AFullBatchIsFollowedByTheNext) {
  UdpBatch batch = nextBatch();
  constexpr size_t kSent = 2 * UdpBatch::kCapacity + 3;
  for (size_t i = 0; i < kSent; ++i) send({std::to_string(i)});
  for (size_t next = 0; next < kSent;) {
    const Texts texts = received(batch);
    ASSERT_FALSE(texts.empty());
    for (const std::string& text : texts) EXPECT_EQ(text, std::to_string(next++));
    batch.flush(socket_);
  }
  EXPECT_TRUE(isEmpty());
}

// The kernel passes over an empty datagram that it has shown, though the next process begins anew.
TEST_F(KeptUntilFlush, AnEmptyDatagramThatWasShownDoesNotStay) {
  UdpBatch killed = nextBatch();
  send({""});
  EXPECT_EQ(received(killed), Texts{""});
  UdpBatch batch = nextBatch();
  EXPECT_EQ(batch.receive(socket_), 0u);
  EXPECT_FALSE(isEmpty());
  batch.takeHidden(socket_);
  EXPECT_EQ(received(batch), Texts{""});
  batch.flush(socket_);
  EXPECT_TRUE(isEmpty());
}

TEST_F(KeptUntilFlush, AWakeUpForNothingChangesNothing) {
  UdpBatch killed = nextBatch();
  EXPECT_EQ(killed.receive(socket_), 0u);
  killed.takeHidden(socket_);
  send({"a"});
  EXPECT_EQ(received(killed), Texts{"a"});
  UdpBatch next = nextBatch();
  EXPECT_EQ(received(next), Texts{"a"});
}

// It is not for two readers; but nothing is lost, and nothing stays.
TEST_F(KeptUntilFlush, WhatAnotherHasReadMeanwhileDoesNoHarm) {
  UdpBatch batch = nextBatch();
  send({"aaa", "b"});
  EXPECT_EQ(received(batch), (Texts{"aaa", "b"}));
  UdpBatch other;
  EXPECT_EQ(other.receive(socket_), 2u);
  batch.flush(socket_);
  send({"c", "dd"});
  EXPECT_EQ(received(batch), (Texts{"c", "dd"}));
  batch.flush(socket_);
  send({"e"});
  EXPECT_EQ(received(batch), Texts{"e"});
  batch.flush(socket_);
  EXPECT_TRUE(isEmpty());
}

TEST_F(KeptUntilFlush, AnErrorOfAnAnswerDoesNotLeaveDatagramsBehind) {
  UdpBatch batch = nextBatch();
  {
    test::Socket gone = test::udpClient();
    for (const char* text : {"a", "b"}) ASSERT_TRUE(gone.sendTo(socket_.localAddress(), text));
    ASSERT_EQ(received(batch), (Texts{"a", "b"}));
    sockaddr_storage storage;
    const socklen_t length = gone.localAddress().toSockaddr(&storage);
    const auto* to = reinterpret_cast<const sockaddr*>(&storage);
    ASSERT_EQ(::connect(socket_.fd(), to, length), 0);  // so that the kernel reports what ICMP says
  }
  batch.reply(0, 1);
  batch.flush(socket_);
  EXPECT_TRUE(isEmpty());
}

// Datagrams from the network: on loopback the kernel takes checksums for good.
TEST_F(KeptUntilFlush, ADatagramWithABadChecksumIsPassedOver) {
  const int raw = ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
  if (raw < 0) GTEST_SKIP() << "only root sends these";
  const FileDescriptor owner(raw);
  UdpBatch batch = nextBatch();
  const auto send_bad = [&] {
    const std::array<uint16_t, 5> datagram{htons(client_.localAddress().port), htons(socket_.localAddress().port),
                                           htons(10), htons(0xbad), htons(0x7878)};
    sockaddr_storage storage;
    const socklen_t length = address("127.0.0.1", 0).toSockaddr(&storage);
    const auto* to = reinterpret_cast<const sockaddr*>(&storage);
    ASSERT_EQ(::sendto(raw, datagram.data(), sizeof datagram, 0, to, length), ssize_t{sizeof datagram});
  };
  send_bad();
  send({"a"});
  send_bad();
  send({"b"});
  send_bad();
  EXPECT_EQ(received(batch), (Texts{"a", "b"}));
  send_bad();
  send({"c"});
  batch.flush(socket_);
  EXPECT_EQ(received(batch), Texts{"c"});
  batch.flush(socket_);
  EXPECT_TRUE(isEmpty());
}

}  // namespace
}  // namespace idetcd::net
