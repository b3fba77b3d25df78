// The check of the process's own /health, against a real server and against none.
#include "directive/health/self_check.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "../net/sockets.h"
#include "http/server.h"

namespace idetcd::directive {
namespace {

using namespace std::chrono_literals;

class SelfCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = http::Server::start();
    ASSERT_TRUE(server.has_value());
    server_ = std::move(*server);
    const auto listening = server_->listen(kAny);
    ASSERT_TRUE(listening.has_value()) << listening.error().message;
    endpoint_ = *listening;
  }

  void serve(int status, const std::string& body) {
    server_->use(
        {{kAny, {{"/health", [=](const http::Request&) { return http::Response{.status = status, .body = body}; }}}}});
  }
  // Runs the loop until `condition`, which is looked at 100 times a second.
  void runUntil(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    bool in_time = true;
    net::Timer poll(loop_, [&] {
      in_time = std::chrono::steady_clock::now() < end;
      if (condition() || !in_time) loop_.stop();
    });
    poll.start(10ms, 10ms);
    loop_.run();
    EXPECT_TRUE(in_time);
  }

  const SocketAddress kAny = net::test::address("127.0.0.1", 0);
  std::unique_ptr<http::Server> server_;
  SocketAddress endpoint_;
  net::EventLoop loop_;
};

TEST_F(SelfCheckTest, AsksOnceASecond) {
  serve(200, "OK");
  const SelfCheck check(loop_, endpoint_, {}, {});
  const HealthCounters& counters = check.counters();
  runUntil([&counters] { return counters.duration.count() == 1; });
  const auto begin = std::chrono::steady_clock::now();
  runUntil([&counters] { return counters.duration.count() == 3; });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 1s) << "two in a row would be at once";
  EXPECT_EQ(counters.failures.value(), 0U);
  EXPECT_GT(counters.duration.sum(), 0U);
}

TEST_F(SelfCheckTest, AWildcardIsAskedOnLoopback) {
  serve(200, "OK");
  const SelfCheck check(loop_, net::test::address("0.0.0.0", endpoint_.port), {}, {});
  runUntil([&check] { return check.counters().duration.count() == 1; });
  EXPECT_EQ(check.counters().failures.value(), 0U);
}

TEST_F(SelfCheckTest, CountsWhatIsNotHealthy) {
  serve(503, "OK");
  const SelfCheck check(loop_, endpoint_, {}, {});
  runUntil([&check] { return check.counters().failures.value() == 1; });
  EXPECT_EQ(check.counters().duration.count(), 1U);
  serve(200, "OK");
  runUntil([&check] { return check.counters().duration.count() == 2; });
  EXPECT_EQ(check.counters().failures.value(), 1U) << "the next one is a new connection";
}

TEST_F(SelfCheckTest, CountsRefusedConnections) {
  server_.reset();
  const SelfCheck check(loop_, endpoint_, {}, {});
  runUntil([&check] { return check.counters().failures.value() == 1; });
}

TEST_F(SelfCheckTest, SilenceIsAFailureAfterThreeSeconds) {
  const net::test::Socket silent(SOCK_STREAM, kAny);
  ASSERT_EQ(::listen(silent.fd(), 1), 0);
  const SelfCheck check(loop_, silent.localAddress(), {}, {});
  runUntil([&check] { return check.counters().failures.value() == 1; });
  EXPECT_GE(check.counters().duration.sum(), 3'000'000'000U);
}

}  // namespace
}  // namespace idetcd::directive
