// Which names resolve, asked of real sockets that answer as resolvers do.
#include "cli/roster.h"

#include <array>
#include <atomic>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include <gtest/gtest.h>

#include "base/file_descriptor.h"

namespace idetcd::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// Answers every question over UDP at 127.0.0.1: with an address for rcode 0, or that error.
class Resolver {
 public:
  enum class Way : uint8_t { kAddress = 0, kNxDomain = 3, kRefused = 5, kSilent };

  explicit Resolver(Way way) : way_(way), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage storage;
    const SocketAddress any{.ip = IpAddress::v4({127, 0, 0, 1})};
    socklen_t length = any.toSockaddr(&storage);
    auto* address = reinterpret_cast<sockaddr*>(&storage);  // NOLINT: as the interface is
    EXPECT_EQ(::bind(socket_.get(), address, length), 0);
    EXPECT_EQ(::getsockname(socket_.get(), address, &length), 0);
    address_ = *SocketAddress::fromSockaddr(address);
    thread_ = std::thread([this] { serve(); });
  }
  ~Resolver() {
    end_ = true;
    thread_.join();
  }
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  const SocketAddress& address() const { return address_; }
  int asked() const { return asked_; }

 private:
  void serve() {
    while (!end_) {
      pollfd one{socket_.get(), POLLIN, 0};
      if (::poll(&one, 1, 10) > 0) answerOne();
    }
  }
  void answerOne() {
    std::array<uint8_t, 512> message{};
    sockaddr_storage client;
    socklen_t length = sizeof client;
    auto* address = reinterpret_cast<sockaddr*>(&client);  // NOLINT: as the interface is
    const ssize_t got = ::recvfrom(socket_.get(), message.data(), message.size() - 16, 0, address, &length);
    if (got < 12) return;
    ++asked_;
    if (way_ == Way::kSilent) return;
    auto size = static_cast<size_t>(got);
    message[2] |= 0x80;
    message[3] = way_ == Way::kAddress ? 0 : static_cast<uint8_t>(way_);
    if (way_ == Way::kAddress) {
      constexpr std::array<uint8_t, 16> kRecord{0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 192, 0, 2, 7};
      message[7] = 1;
      std::copy(kRecord.begin(), kRecord.end(), message.begin() + got);
      size += kRecord.size();
    }
    ::sendto(socket_.get(), message.data(), size, 0, address, length);
  }

  const Way way_;
  const FileDescriptor socket_;
  SocketAddress address_;
  std::atomic<bool> end_ = false;
  std::atomic<int> asked_ = 0;
  std::thread thread_;
};

using Way = Resolver::Way;

Cluster three(json servers) {
  json slots = json::array();
  for (int id = 1; id <= 3; ++id)
    slots.push_back({{"id", id}, {"name", "w" + std::to_string(id) + ".tf.local."}, {"addresses", {"192.0.2.7"}}});
  slots[0]["own"] = true;
  return clustersOf(
      {{"clusters", {{{"pattern", "w{{.ID}}.tf.local."}, {"servers", std::move(servers)}, {"slots", slots}}}}})[0];
}

TEST(Roster, AllNamesAreAskedForInTheLastAttemptToo) {
  const Resolver good(Way::kAddress);
  const Deadline over(0ns);
  const auto found = atLeastResolved(three({}), 3, {good.address()}, over);
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->size(), 3u);
}

TEST(Roster, TheFirstThatResolvesCounts) {
  const Resolver refusing(Way::kRefused);
  const Resolver ignorant(Way::kNxDomain);
  const Resolver good(Way::kAddress);
  const auto found =
      atLeastResolved(three({}), 3, {refusing.address(), ignorant.address(), good.address()}, Deadline(std::nullopt));
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->size(), 3u);
  EXPECT_EQ(ignorant.asked(), 2) << "what has resolved one name is asked first for the next";
}

TEST(Roster, WhatIsSilentIsLeftOut) {
  const Resolver silent(Way::kSilent);
  const Resolver good(Way::kAddress);
  const auto found = atLeastResolved(three({}), 3, {silent.address(), good.address()}, Deadline(1h));
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->size(), 3u);
}

TEST(Roster, NobodyResolves) {
  const Resolver refusing(Way::kRefused);
  const auto refused = atLeastResolved(three({}), 3, {refusing.address()}, Deadline(0ns));
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().may_pass);
  EXPECT_EQ(refused.error().message, "0 of 3 names are held and resolve: the server answers REFUSED");
  EXPECT_EQ(refusing.asked(), 3);
  EXPECT_EQ(atLeastResolved(three({}), 4, {refusing.address()}, Deadline(0ns)).error().message,
            "3 of 4 names are held");
}

TEST(Roster, ServersAreThoseThatAreSaid) {
  const LocalNode node("/nowhere/5353.sock", "/nowhere");
  const auto said = serversOf(node, three({"169.254.20.10:53", "[::1]:5300", "stray", "1.2.3.4:0", 7}));
  ASSERT_TRUE(said.has_value());
  ASSERT_EQ(said->size(), 2u);
  EXPECT_EQ(said->at(0).toString(), "169.254.20.10:53");
  EXPECT_EQ(said->at(1).toString(), "[::1]:5300");
  const auto guessed = serversOf(node, three(json::array()));
  ASSERT_TRUE(guessed.has_value());
  ASSERT_EQ(guessed->size(), 3u);
  EXPECT_EQ(guessed->at(0).toString(), "127.0.0.1:5353");
  EXPECT_EQ(guessed->at(2).toString(), "192.0.2.7:5353");
  EXPECT_FALSE(serversOf(LocalNode("/nowhere/x.sock", "/nowhere"), three(json::array())).has_value());
}

TEST(Roster, PatienceIsWhatIsLeft) {
  EXPECT_EQ(Deadline(std::nullopt).patience(), LocalNode::kReadPatience);
  EXPECT_EQ(Deadline(0ns).patience(), 1s);
  EXPECT_EQ(Deadline(1h).patience(), LocalNode::kReadPatience);
  EXPECT_LE(Deadline(3s).patience(), 3s);
  EXPECT_EQ(Deadline::once().patience(), LocalNode::kReadPatience);
  EXPECT_TRUE(Deadline::once().isOver());
}

}  // namespace
}  // namespace idetcd::cli
