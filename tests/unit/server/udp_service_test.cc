#include "server/udp_service.h"

#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "dns_packets.h"
#include "running_server.h"

namespace idetcd::server {
namespace {

using test::Answer;
using test::Names;
using test::query;

constexpr uint16_t kAaaa = 28;

class UdpServiceTest : public ::testing::Test {
 protected:
  Answer ask(const std::string& message) {
    EXPECT_TRUE(client_.sendTo(server_.udpAddress(), message));
    const auto answer = client_.receive();
    EXPECT_TRUE(answer && answer->bytes.size() >= dns::kHeaderSize);
    return Answer(answer->bytes);
  }
  // Once this is answered, all that was sent before has been handled.
  void settle() { EXPECT_EQ(ask(query(0xfff0, Names::nameOf(1))).id, 0xfff0); }

  test::RunningServer server_;
  net::test::Socket client_ = net::test::udpClient();
};

TEST_F(UdpServiceTest, Answers) {
  const Answer hit = ask(query(7, Names::nameOf(42)));
  EXPECT_EQ(hit.id, 7);
  EXPECT_EQ(hit.answers, 1);
  EXPECT_EQ(hit.last_octet, 42);
  EXPECT_NE(hit.flags & dns::kFlagAa, 0);
  const Answer no_data = ask(query(8, Names::nameOf(42), kAaaa));
  EXPECT_EQ(no_data.rcode(), 0);
  EXPECT_EQ(no_data.answers, 0);
  EXPECT_EQ(ask(query(9, "nobody.tf.local.")).rcode(), dns::code(dns::Rcode::kNxDomain));
  EXPECT_EQ(ask(query(10, "example.org.")).rcode(), dns::code(dns::Rcode::kRefused));
}

TEST_F(UdpServiceTest, AnswersABurstOfSeveralBatchesCompletely) {
  constexpr uint16_t kClients = 10;
  constexpr uint16_t kQueries = 100;  // each: what a socket's default buffer holds
  std::vector<net::test::Socket> clients;
  std::promise<void> all_sent;
  server_.post([&] { all_sent.get_future().wait(); });  // so that they are all there when the loop goes on
  for (uint16_t c = 0; c < kClients; ++c) {
    clients.push_back(net::test::udpClient());
    for (uint16_t i = 0; i < kQueries; ++i) {
      ASSERT_TRUE(clients.back().sendTo(server_.udpAddress(), query(i, Names::nameOf(1 + i), 1, i % 2 == 0)));
    }
  }
  all_sent.set_value();
  for (auto& client : clients) {
    for (uint16_t i = 0; i < kQueries; ++i) {
      const auto bytes = client.receive();
      ASSERT_TRUE(bytes);
      const Answer answer(bytes->bytes);
      ASSERT_EQ(answer.id, i);
      ASSERT_EQ(answer.answers, 1);
      if (i % 2 == 1) {  // without OPT it ends with the address
        EXPECT_EQ(answer.last_octet, 1 + i);
      }
    }
  }
  EXPECT_EQ(server_.counters().udp_sent.value(), kClients * kQueries);
}

TEST_F(UdpServiceTest, DropsWhatIsNoQueryAndGoesOn) {
  std::string response = query(1, Names::nameOf(1));
  response[2] = static_cast<char>(0x80);
  for (const std::string& junk : {std::string(), std::string("x"), std::string(11, '\0'), response}) {
    ASSERT_TRUE(client_.sendTo(server_.udpAddress(), junk));
  }
  settle();
  EXPECT_FALSE(client_.isReadable(0));
  EXPECT_EQ(server_.counters().dropped.value(resolve::DropReason::kMalformed), 4u);
  EXPECT_EQ(server_.counters().dropped.value(), 4u);
  EXPECT_EQ(server_.counters().udp_received.value(), 5u);
}

TEST_F(UdpServiceTest, DropsWhatIsLongerThanItsBuffer) {
  std::string message = query(1, Names::nameOf(1));
  message.resize(net::UdpBatch::kBufferSize + 2000);
  client_.sendTo(server_.udpAddress(), message);
  settle();
  EXPECT_EQ(server_.counters().dropped.value(resolve::DropReason::kOversized), 1u);
  EXPECT_EQ(server_.counters().dropped.value(), 1u);
}

TEST_F(UdpServiceTest, DroppedAndAnsweredOnesMayBeMixed) {
  for (uint16_t i = 0; i < 60; ++i) {
    const std::string message = query(i, Names::nameOf(1 + i));
    client_.sendTo(server_.udpAddress(), i % 3 == 0 ? message.substr(0, 5) : message);
  }
  for (uint16_t i = 0; i < 60; ++i) {
    if (i % 3 == 0) continue;
    const Answer answer(client_.receive()->bytes);
    EXPECT_EQ(answer.id, i);  // in order
    EXPECT_EQ(answer.last_octet, 1 + i);
  }
}

TEST(UdpService, OnAWildcardAddressAnswersFromTheAddressAsked) {
  test::RunningServer server("0.0.0.0");
  net::test::Socket client = net::test::udpClient();
  for (const char* ip : {"127.0.0.1", "127.0.0.2", "127.9.9.9"}) {
    client.sendTo(net::test::address(ip, server.udpAddress().port), query(5, Names::nameOf(3)));
    const auto answer = client.receive();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->from->ip.toString(), ip);
    EXPECT_EQ(Answer(answer->bytes).last_octet, 3);
  }
}

TEST(UdpService, AnswersOverIpv6) {
  net::test::Socket client = net::test::udpClient("::1");
  if (!client.ok()) GTEST_SKIP() << "no IPv6 here";
  test::RunningServer server("::");
  client.sendTo(net::test::address("::1", server.udpAddress().port), query(5, Names::nameOf(3)));
  EXPECT_EQ(Answer(client.receive()->bytes).last_octet, 3);
}

}  // namespace
}  // namespace idetcd::server
