// Endpoints of a configuration are served when it is accepted, and nothing else changes them.
#include "http/endpoints.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "net/event_loop.h"
#include "records/epoch.h"
#include "support/eventually.h"
#include "support/free_port.h"

namespace idetcd::http {
namespace {

using test_support::freePort;

class EndpointsTest : public ::testing::Test {
 protected:
  ~EndpointsTest() override { endpoints_.stop(); }

  // An address of this process alone, so that its ports are.
  static std::string host() {
    const auto id = static_cast<unsigned>(::getpid());
    return "127." + std::to_string(64 + (id >> 16)) + "." + std::to_string(id >> 8 & 0xff) + "." +
           std::to_string(id & 0xff);
  }
  Result<std::vector<SocketAddress>> add(uint16_t port, const std::string& path, const std::string& body) {
    return endpoints_.add({.host = host(), .port = std::to_string(port)}, path,
                          [body](const Request&) { return Response{.body = body}; });
  }
  // The status and the body; "" if nothing listens.
  static std::string get(uint16_t port, const std::string& path) {
    net::test::Socket client(SOCK_STREAM, net::test::address("127.0.0.1", 0));
    if (!client.connect(net::test::address(host(), port))) return "";
    client.send("GET " + path + " HTTP/1.0\r\n\r\n");
    const std::string answer = client.receiveExactly(10'000);
    return answer.size() < 13 ? "" : answer.substr(9, 3) + " " + answer.substr(answer.find("\r\n\r\n") + 4);
  }
  static void await(uint16_t port, const std::string& path, const std::string& wanted) {
    EXPECT_TRUE(eventually([&] { return get(port, path) == wanted; })) << get(port, path);
  }

  records::EpochDomain epochs_;
  net::EventLoop loop_;
  resolve::Process process_{Logger(), loop_, epochs_};
  Endpoints& endpoints_ = process_.state<Endpoints>();
};

TEST_F(EndpointsTest, AreServedOnceAccepted) {
  const uint16_t port = freePort();
  ASSERT_TRUE(add(port, "/a", "one").has_value());
  ASSERT_TRUE(add(port, "/b", "two").has_value());
  EXPECT_EQ(get(port, "/a"), "503 Service Unavailable\n");
  endpoints_.accept();
  await(port, "/a", "200 one");
  EXPECT_EQ(get(port, "/b"), "200 two");
}

TEST_F(EndpointsTest, AreReplacedTogether) {
  const uint16_t port = freePort();
  const uint16_t old = freePort();
  ASSERT_TRUE(add(port, "/a", "one").has_value() && add(old, "/a", "one").has_value());
  endpoints_.accept();
  ASSERT_TRUE(add(port, "/a", "new").has_value());
  EXPECT_EQ(get(port, "/a"), "200 one") << "it is not accepted yet";
  endpoints_.accept();
  await(port, "/a", "200 new");
  EXPECT_EQ(get(old, "/a"), "");
}

TEST_F(EndpointsTest, ARefusedConfigurationChangesNothing) {
  const uint16_t port = freePort();
  const uint16_t other = freePort();
  ASSERT_TRUE(add(port, "/a", "one").has_value());
  endpoints_.accept();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(add(other, "/a", "bad").has_value() && add(port, "/a", "bad").has_value());
    endpoints_.refuse();
    ASSERT_EQ(get(port, "/a"), "200 one");
  }
  EXPECT_EQ(get(other, "/a"), "");
}

TEST_F(EndpointsTest, APortOfAnotherProgramIsAnError) {
  const net::test::Socket taken(SOCK_STREAM, net::test::address(host(), 0));
  ASSERT_EQ(::listen(taken.fd(), 1), 0);
  endpoints_.accept();
  const auto added = add(taken.localAddress().port, "/a", "one");
  ASSERT_FALSE(added.has_value());
  EXPECT_NE(added.error().message.find("Address already in use"), std::string::npos) << added.error().message;
}

TEST_F(EndpointsTest, PortsThatAreTakenAtTheStartAreWaitedForTogether) {
  const net::test::Socket one(SOCK_STREAM, net::test::address(host(), 0));
  const net::test::Socket other(SOCK_STREAM, net::test::address(host(), 0));
  ASSERT_TRUE(::listen(one.fd(), 1) == 0 && ::listen(other.fd(), 1) == 0);
  const auto begin = BootClock::now();
  ASSERT_FALSE(add(one.localAddress().port, "/a", "one").has_value());
  const auto end_of_first = BootClock::now();
  EXPECT_GE(end_of_first - begin, Endpoints::kStartPatience);
  ASSERT_FALSE(add(other.localAddress().port, "/a", "one").has_value());
  EXPECT_LT(BootClock::now() - end_of_first, Endpoints::kStartPatience);
}

}  // namespace
}  // namespace idetcd::http
