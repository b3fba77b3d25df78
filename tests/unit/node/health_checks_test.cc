#include "node/health_checks.h"

#include <csignal>
#include <netinet/in.h>
#include <string>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "support/eventually.h"
#include "support/temporary_directory.h"

namespace idetcd::node {
namespace {

using namespace std::chrono_literals;

Check parsed(const std::vector<std::string>& words) {
  const auto check = Check::parse(words);
  EXPECT_TRUE(check) << words.front();
  return check.value_or(Check{});
}

TEST(Check, IsAProgramAPortOrAUrl) {
  const std::vector<std::string> program{"/bin/test", "-e", "/x"};
  EXPECT_EQ(parsed(program).command, program);
  EXPECT_EQ(parsed(program).name(), "/bin/test");
  EXPECT_EQ(parsed({"tcp", "8080"}).name(), "tcp 127.0.0.1:8080");
  EXPECT_EQ(parsed({"tcp", "[::1]:8080"}).name(), "tcp [::1]:8080");
  EXPECT_EQ(parsed({"tcp", "localhost:8080"}).name(), "tcp 127.0.0.1:8080");
  const Check url = parsed({"http", "http://localhost:8080/health?x=1"});
  EXPECT_EQ(url.address.toString(), "127.0.0.1:8080");
  EXPECT_EQ(std::pair(url.host, url.path), std::pair(std::string("localhost:8080"), std::string("/health?x=1")));
  EXPECT_EQ(url.name(), "http://localhost:8080/health?x=1");
  EXPECT_EQ(parsed({"http", "http://[::1]"}).address.toString(), "[::1]:80");
  EXPECT_EQ(parsed({"http", "http://192.0.2.1?x"}).path, "/?x");
}

TEST(Check, WhatIsNoneIsRefused) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {}, {""}, {"tcp"}, {"tcp", "0"}, {"tcp", "65536"}, {"tcp", "a:1"}, {"tcp", "1", "2"}, {"http"},
           {"http", "8080"}, {"http", "https://127.0.0.1"}, {"http", "http://host.test"}, {"http", "http://127.0.0.1/a b"},
           {"http", "http://127.0.0.1/\r\nX: y"}, {"http", "http://127.0.0.1/#a"}, {"http", "http://"}}) {
    EXPECT_FALSE(Check::parse(words)) << (words.empty() ? "" : words.back());
  }
}

TEST(CheckVerdict, ChangesAfterSomeAttemptsInARow) {
  CheckVerdict verdict({.fails = 3, .passes = 2});
  const auto after = [&verdict](std::string_view attempts) {
    for (const char one : attempts) verdict.add(one == '+');
    return verdict.fails();
  };
  EXPECT_FALSE(after("+"));
  EXPECT_FALSE(after("--+--"));
  EXPECT_TRUE(after("-"));
  EXPECT_TRUE(after("+-+-"));
  EXPECT_FALSE(after("++"));
  EXPECT_FALSE(after("--"));
}

TEST(CheckVerdict, TheFirstAttemptDecidesAlone) {
  CheckVerdict verdict({.fails = 3, .passes = 1});
  verdict.add(false);
  EXPECT_TRUE(verdict.fails());
}

// Takes one connection, answers it, and closes it.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer, bool hangs = false) : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage storage{};
    const socklen_t length = SocketAddress{*IpAddress::parse("127.0.0.1"), 0, 0}.toSockaddr(&storage);
    auto* any = reinterpret_cast<sockaddr*>(&storage);
    socklen_t size = sizeof storage;
    const bool listens = ::bind(listener_.get(), any, length) == 0 && ::listen(listener_.get(), 5) == 0 &&
                         ::getsockname(listener_.get(), any, &size) == 0;
    EXPECT_TRUE(listens);
    port_ = ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
    thread_ = std::thread([this, answer = std::move(answer), hangs] {
      const FileDescriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::array<char, 1024> bytes;
      const ssize_t got = ::recv(client.get(), bytes.data(), bytes.size(), 0);
      request_.assign(bytes.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (!answer.empty()) (void)::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      if (hangs) (void)::recv(client.get(), bytes.data(), bytes.size(), 0);  // until it is left
    });
  }
  ~OneAnswer() { thread_.join(); }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;

  std::string url() const { return fmt::format("http://127.0.0.1:{}/health", port_); }
  std::string request() {
    thread_.join();
    thread_ = std::thread([] {});
    return request_;
  }

 private:
  const FileDescriptor listener_;
  uint16_t port_ = 0;
  std::string request_;
  std::thread thread_;
};

class HealthChecksTest : public testing::Test {
 protected:
  Result<void> look(const std::vector<std::string>& words, std::chrono::milliseconds timeout = 60s) const {
    return attempt(parsed(words), timeout, runner_.get(), never_, killed_);
  }
  std::string why(const std::vector<std::string>& words, std::chrono::milliseconds timeout = 60s) const {
    const auto outcome = look(words, timeout);
    return outcome ? "well" : outcome.error().message;
  }
  std::string answered(const std::string& answer, bool hangs = false) const {
    OneAnswer server(answer, hangs);
    return why({"http", server.url()}, hangs ? 200ms : 60s);
  }

  TemporaryDirectory directory_;
  const FileDescriptor never_{::eventfd(0, EFD_CLOEXEC)};
  mutable std::optional<sandbox::RunningProgram> killed_;
  const std::shared_ptr<sandbox::ProgramRunner> runner_ = sandbox::ProgramRunner::make(sandbox::Mode::kOff).value();
};

// One that waits for a device, say. A second one would wait beside it.
TEST_F(HealthChecksTest, NothingIsStartedBesideAProgramThatDoesNotEnd) {
  killed_ = runner_->start({"sleep", "600"}, {}).value();
  const int descriptor = killed_->descriptor();
  EXPECT_EQ(why({"true"}), "does not end, though it was killed");
  killed_->kill();
  pollfd ended{.fd = descriptor, .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&ended, 1, 60'000), 1);
  EXPECT_EQ(why({"true"}), "well");
  EXPECT_FALSE(killed_);
}

TEST_F(HealthChecksTest, AProgramIsWellByItsStatus) {
  EXPECT_EQ(why({"true"}), "well");
  EXPECT_EQ(why({"sh", "-c", "exit 3"}), "ended with status 3");
  EXPECT_EQ(why({"sh", "-c", "kill -9 $$"}), "ended by signal 9");
  EXPECT_NE(why({directory_ / "none"}), "well");
}

TEST_F(HealthChecksTest, AProgramThatHangsIsKilledWithItsChildren) {
  const std::string out = directory_ / "out";
  EXPECT_EQ(why({"sh", "-c", "sleep 600 & echo $! >" + out + "; wait"}, 10s), "did not end in time");
  ASSERT_TRUE(eventually([&] { return contentsOf(out).ends_with('\n'); }));
  const auto child = static_cast<pid_t>(std::stol(contentsOf(out)));
  EXPECT_TRUE(eventually([child] { return ::kill(child, 0) != 0; }));
}

TEST_F(HealthChecksTest, APortIsWellIfItTakesAConnection) {
  OneAnswer server("");
  const std::string port = server.url().substr(server.url().rfind(':') + 1);
  EXPECT_EQ(why({"tcp", port.substr(0, port.find('/'))}), "well");
  EXPECT_EQ(why({"tcp", "1"}), "Connection refused");
}

TEST_F(HealthChecksTest, AUrlIsWellByItsStatusAndIsNotFollowed) {
  EXPECT_EQ(answered("HTTP/1.1 200 OK\r\n\r\n"), "well");
  EXPECT_EQ(answered("HTTP/1.0 204 No Content\r\n\r\n"), "well");
  EXPECT_EQ(answered("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"), "well");
  EXPECT_EQ(answered("HTTP/1.1 404 Not Found\r\n\r\n"), "answers 404");
  EXPECT_EQ(answered("HTTP/1.1 500 x\r\n\r\n"), "answers 500");
  EXPECT_EQ(answered("SSH-2.0-x\r\n"), "the answer is not HTTP");
  EXPECT_EQ(answered(std::string(1000, 'x')), "the answer is not HTTP");
  EXPECT_EQ(answered(""), "the connection ends without an answer");
  EXPECT_EQ(answered("HTTP/1.1 200", true), "no answer in time");
  OneAnswer server("HTTP/1.1 200 OK\r\n\r\n");
  EXPECT_EQ(why({"http", server.url()}), "well");
  EXPECT_TRUE(server.request().starts_with("GET /health HTTP/1.1\r\nHost: 127.0.0.1:")) << server.request();
}

TEST_F(HealthChecksTest, SayWhatFailsAndThatAllIsWellAgain) {
  std::mutex mutex;
  std::vector<std::string> told;
  const auto last = [&] {
    const std::lock_guard lock(mutex);
    return told.empty() ? "" : told.back();
  };
  const std::string first = directory_ / "first";
  const std::string second = directory_ / "second";
  const HealthChecks checks({parsed({"test", "!", "-e", first}), parsed({"test", "!", "-e", second})},
                            {.interval = 20ms, .timeout = 60s, .fails = 2, .passes = 2}, runner_,
                            [&](const std::string& sick) {
                              const std::lock_guard lock(mutex);
                              told.push_back(sick);
                            },
                            {});
  overwrite(first, "");
  EXPECT_TRUE(eventually([&] { return last() == "test: ended with status 1"; }));
  overwrite(second, "");
  EXPECT_TRUE(eventually([&] { return last() == "test: ended with status 1; test: ended with status 1"; }));
  ::unlink(first.c_str());
  ::unlink(second.c_str());
  EXPECT_TRUE(eventually([&] { return last().empty(); }));
}

TEST_F(HealthChecksTest, TheEndWaitsForNoProgram) {
  const std::string out = directory_ / "out";
  std::atomic<bool> told{false};
  {
    const HealthChecks checks({parsed({"sh", "-c", "echo $$ >" + out + "; exec sleep 600"})}, {.timeout = 500s}, runner_,
                              [&](const std::string&) { told = true; }, {});
    ASSERT_TRUE(eventually([&] { return contentsOf(out).ends_with('\n'); }));
  }
  const auto program = static_cast<pid_t>(std::stol(contentsOf(out)));
  EXPECT_TRUE(eventually([program] { return ::kill(program, 0) != 0; }));
  EXPECT_FALSE(told) << "what was interrupted says nothing";
}

}  // namespace
}  // namespace idetcd::node
