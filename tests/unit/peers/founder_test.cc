#include "peers/founder.h"

#include <filesystem>
#include <future>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/eventually.h"
#include "support/free_port.h"

namespace idetcd::peers {
namespace {

using namespace std::chrono_literals;
using test_support::freePort;

std::string founderUuid(int number) { return fmt::format("00000000-0000-4000-8000-{:012}", number); }

// Machine N on 127.0.0.N, the older the lower N is.
class FounderTest : public testing::Test {
 protected:
  static constexpr auto kTimeout = 120s;  // only a failing test spends it

  FounderTest() : directory_(testing::TempDir() + fmt::format("founder.{}.{}", ::getpid(), port_)) {
    std::filesystem::create_directories(directory_);
  }
  ~FounderTest() override {
    founders_.clear();
    for (const auto& [number, disk] : disks_) disk->drain();
    std::filesystem::remove_all(directory_);
  }

  SocketAddress address(int number) const { return {IpAddress::v4({127, 0, 0, static_cast<uint8_t>(number)}), port_}; }
  std::string record(int number) const { return fmt::format("{}/{}", directory_, number); }

  Founder::Options options(int number, uint32_t expect) {
    Founder::Options options;
    options.self = {
        .member = {number, founderUuid(number)}, .addresses = {address(number)}, .durable = true, .expect = expect};
    options.port = port_;
    options.meeting.addresses = {address(1), address(2)};
    options.key = key_;
    options.record_file = record(number);
    auto& disk = disks_[number];
    if (!disk) disk = executor_->makeStrand();
    disk->drain();
    options.disk = disk;
    const auto bytes = readFile(record(number), Founder::kMaxRecord);
    options.record = bytes ? *founding::decodeRecord(*bytes, founderUuid(number))
                           : founding::Record{founderUuid(number), {}, {}, {}};
    options.on_member = [this, number](const founding::Value& value, const std::vector<founding::Voter>& voters,
                                       bool promised) {
      const std::lock_guard lock(mutex_);
      members_[number] = value;
      voters_[number] = voters;
      promised_[number] = promised;
      changed_.notify_all();
    };
    return options;
  }
  Founder& add(int number, Founder::Options options) {
    auto founder = std::make_unique<Founder>(std::move(options), Logger());
    const auto started = founder->start();
    EXPECT_TRUE(started) << started.error().message;
    return *(founders_[number] = std::move(founder));
  }
  // Until all that run are members. The value.
  std::optional<founding::Value> decided() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kTimeout, [this] { return members_.size() == founders_.size(); })) return std::nullopt;
    for (const auto& [number, value] : members_) EXPECT_EQ(value, members_.begin()->second) << number;
    return members_.begin()->second;
  }
  bool haveVoters(int number, const std::vector<founding::Voter>& wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kTimeout, [&] { return voters_[number] == wanted; });
  }

  const uint16_t port_ = freePort();
  const std::string directory_;
  founding::Key key_ = founding::Secret::parse("the secret of the machines")->derive(founding::kMessageLabel);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, founding::Value> members_;
  std::map<int, std::vector<founding::Voter>> voters_;
  std::map<int, bool> promised_;
  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  std::map<int, std::shared_ptr<Executor::Strand>> disks_;
  std::map<int, std::unique_ptr<Founder>> founders_;
};

TEST_F(FounderTest, MachinesDecideOneClusterInTheOrderOfTheirStart) {
  for (const int number : {5, 3, 1, 4, 2}) add(number, options(number, 5));
  const auto value = decided();
  ASSERT_TRUE(value);
  ASSERT_EQ(value->members.size(), 5u);
  for (int number = 1; number <= 5; ++number) EXPECT_EQ(value->numberOf(founderUuid(number)), number);
  EXPECT_EQ(value->voters.size(), 3u);
  EXPECT_EQ(founders_[3]->status().cluster, value);
  EXPECT_TRUE(founders_[3]->status().listens);
}

// Each one is read and thrown away at once, and puts off none of the founding's timers.
TEST_F(FounderTest, AStrangersDatagramsHoldUpNothing) {
  const int stranger = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(stranger, 0);
  std::atomic<bool> ended = false;
  std::thread flood([&] {
    while (!ended) {
      for (const int number : {1, 2}) {
        const SocketAddress to = address(number);
        sockaddr_in at{.sin_family = AF_INET, .sin_port = htons(to.port), .sin_addr = {}, .sin_zero = {}};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<uint32_t>(number));
        ::sendto(stranger, "x", 1, 0, reinterpret_cast<const sockaddr*>(&at), sizeof at);
      }
      std::this_thread::sleep_for(2ms);  // the rate of the flood
    }
  });
  for (const int number : {1, 2}) add(number, options(number, 2));
  EXPECT_TRUE(decided());
  ended = true;
  flood.join();
  ::close(stranger);
}

// As when one of its addresses comes later than it. There may be a cluster that it cannot ask yet.
TEST_F(FounderTest, WhomItHasNoWayToAskIsWaitedFor) {
  Founder::Options waits = options(1, 1);
  waits.self.addresses.push_back({*IpAddress::parse("192.0.2.7"), port_});
  waits.meeting.addresses = {{*IpAddress::parse("192.0.2.1"), port_}};
  const auto begin = std::chrono::steady_clock::now();
  add(1, std::move(waits));
  EXPECT_TRUE(decided());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 5s);
}

// An Accept, and what a late machine is told, is larger than a datagram.
TEST_F(FounderTest, ManyMachinesAreToldOverTcp) {
  constexpr int kMany = 60;
  for (int number = 1; number <= kMany; ++number) add(number, options(number, kMany));
  const auto value = decided();
  ASSERT_TRUE(value);
  add(kMany + 1, options(kMany + 1, kMany));
  EXPECT_EQ(decided(), value);
}

TEST_F(FounderTest, AllThatAreStartedAnewAreMembersOfTheSameCluster) {
  for (const int number : {1, 2, 3}) add(number, options(number, 3));
  const auto value = decided();
  ASSERT_TRUE(value);
  founders_.clear();
  members_.clear();
  for (const int number : {1, 2, 3}) add(number, options(number, 3));
  EXPECT_EQ(decided(), value);
}

TEST_F(FounderTest, AFounderThatHasLostItsRecordDoesNotRememberThatItPromised) {
  for (const int number : {1, 2}) add(number, options(number, 2));
  const auto value = decided();
  ASSERT_TRUE(value);
  EXPECT_TRUE(promised_[1] && promised_[2]);
  founders_.erase(2);
  disks_[2]->drain();
  std::filesystem::remove(record(2));
  members_.clear();
  add(2, options(2, 2));
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(changed_.wait_for(lock, kTimeout, [this] { return members_.contains(2); }));
  EXPECT_EQ(members_[2], value);
  EXPECT_FALSE(promised_[2]);
}

TEST_F(FounderTest, OneOfAnotherSecretIsNotSeen) {
  add(1, options(1, 2));
  Founder::Options stranger = options(2, 2);
  stranger.key = founding::Secret::parse("the secret of a stranger")->derive(founding::kMessageLabel);
  const metrics::Registry registry;
  stranger.metrics = registry.scope();
  add(2, std::move(stranger));
  const auto dropped = [&registry] {
    double count = 0;
    registry.visit([&count](const metrics::Sample& sample) {
      if (sample.family.name == "idetcd_peers_dropped_total" && sample.label_values.front() == "mac")
        count += sample.value;
    });
    return count;
  };
  EXPECT_TRUE(eventually([&] { return dropped() >= 3; }, kTimeout));
  EXPECT_EQ(founders_[1]->status().progress.seen, 1u);
  EXPECT_FALSE(founders_[1]->status().cluster || founders_[2]->status().cluster);
}

TEST_F(FounderTest, StrangersBytesHinderNobody) {
  add(1, options(1, 2));
  const FileDescriptor udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage to;
  const socklen_t length = address(1).toSockaddr(&to);
  const std::string noise(1400, 'x');
  std::vector<FileDescriptor> streams;
  for (int i = 0; i < 100; ++i) {
    (void)::sendto(udp.get(), noise.data(), noise.size(), 0, reinterpret_cast<sockaddr*>(&to), length);
    streams.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    (void)::connect(streams.back().get(), reinterpret_cast<sockaddr*>(&to), length);
    // A frame that never ends, and one that is too large.
    const std::string frame = i % 2 == 0 ? std::string("\0\0\1\0x", 5) : noise;
    (void)::send(streams.back().get(), frame.data(), frame.size(), MSG_NOSIGNAL);
  }
  add(2, options(2, 2));
  EXPECT_TRUE(decided());
}

TEST_F(FounderTest, ANameThatLeadsToTheMachinesIsEnough) {
  Founder::Options first = options(1, 2);
  first.meeting = {.addresses = {}, .names = {"localhost", "this-name.is.not.there.invalid"}};
  add(1, std::move(first));
  Founder::Options second = options(2, 2);
  second.meeting = {.addresses = {}, .names = {"localhost"}};
  add(2, std::move(second));
  EXPECT_TRUE(decided());
}

TEST_F(FounderTest, AMachineThatCannotKeepItsPromisesTakesPartWhenItCan) {
  const std::string hidden = directory_ + "/later";
  Founder::Options one = options(1, 1);
  one.record_file = hidden + "/record";
  Founder& founder = add(1, std::move(one));
  EXPECT_TRUE(
      eventually([&] { return founder.status().progress.state == founding::Founding::State::kProposing; }, kTimeout));
  EXPECT_FALSE(founder.status().cluster);
  std::filesystem::create_directory(hidden);
  EXPECT_TRUE(decided());
  EXPECT_TRUE(std::filesystem::exists(hidden + "/record"));
}

// The next founder of the process reads the record on this strand too.
TEST_F(FounderTest, WhatWasBeingWrittenAtItsEndIsWrittenBeforeAnybodyReadsIt) {
  Founder::Options one = options(1, 1);
  one.meeting.addresses = {address(1)};
  std::promise<void> goes_on;
  disks_[1]->submit([&] { goes_on.get_future().wait(); });
  Founder& founder = add(1, std::move(one));
  const auto proposes = [&] { return founder.status().progress.state == founding::Founding::State::kProposing; };
  EXPECT_TRUE(eventually(proposes, kTimeout));
  founders_.erase(1);
  Result<std::string> read = fail("not read");
  disks_[1]->submit([&] { read = readFile(record(1), Founder::kMaxRecord); });
  goes_on.set_value();
  disks_[1]->drain();
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_GT(founding::decodeRecord(*read, founderUuid(1))->promised.round, 0u);
}

TEST_F(FounderTest, VotersOfTodayAreFoundByAMemberThatReachesNone) {
  add(1, options(1, 2));
  add(2, options(2, 2));
  ASSERT_TRUE(decided());
  const std::vector<founding::Voter> today{{founderUuid(7), address(7)}};
  founders_[1]->setVoters(today);
  founders_[2]->search(true);
  EXPECT_TRUE(haveVoters(2, today));
  const auto kept = [this] {
    const auto bytes = readFile(record(2), 1 << 20);
    const auto known = bytes ? founding::decodeRecord(*bytes, founderUuid(2)) : tl::unexpected(bytes.error());
    return known ? known->voters : std::vector<founding::Voter>();
  };
  EXPECT_TRUE(eventually([&] { return kept() == today; }, kTimeout));
  // A restart knows them at once.
  founders_.erase(1);
  founders_.erase(2);
  members_.clear();
  voters_.clear();
  add(2, options(2, 2));
  EXPECT_TRUE(haveVoters(2, today));
}

TEST_F(FounderTest, AMachineOfTheYoungerClusterLeavesItWhenItIsTold) {
  const auto alone = [this](int number) {
    Founder::Options one = options(number, 1);
    one.meeting.addresses = {address(number)};
    return one;
  };
  add(1, alone(1));
  const auto survives = decided();
  members_.clear();
  auto first = std::move(founders_.extract(1).mapped());
  Founder::Options second = options(2, 1);  // knows both
  second.meeting.addresses = {address(2)};
  add(2, std::move(second));
  const auto dissolves = decided();
  ASSERT_TRUE(survives && dissolves && *survives != *dissolves);

  founders_.erase(2);
  members_.clear();
  bool leaves = false;
  second = options(2, 1);
  second.on_leave = [&](const founding::Value& value) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(value, dissolves);
    members_.clear();
    leaves = true;
    changed_.notify_all();
  };
  first->search(false);
  Founder& founder = add(2, std::move(second));
  {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, kTimeout, [&] { return leaves; }));
  }
  EXPECT_FALSE(founder.status().cluster);
  const auto record_now = [this] { return *founding::decodeRecord(*readFile(record(2), 1 << 20), founderUuid(2)); };
  EXPECT_EQ(record_now().next, survives);
  founder.left();
  EXPECT_EQ(decided(), survives);
  EXPECT_EQ(record_now().decided, survives);
}

TEST(MeetingTest, WordsAreAddressesNetworksAndNames) {
  const std::vector<std::string> words{"192.0.2.1",   "192.0.2.2:53",    "2001:db8::1", "[2001:db8::2]:53",
                                       "nodes.test.", "198.51.100.0/30", "localhost"};
  const auto meeting = Meeting::parse(words, 2390);
  ASSERT_TRUE(meeting) << meeting.error().message;
  std::vector<std::string> texts;
  for (const SocketAddress& address : meeting->addresses) texts.push_back(address.toString());
  EXPECT_EQ(texts, (std::vector<std::string>{"192.0.2.1:2390", "192.0.2.2:53", "[2001:db8::1]:2390", "[2001:db8::2]:53",
                                             "198.51.100.1:2390", "198.51.100.2:2390"}));
  EXPECT_EQ(meeting->names, (std::vector<std::string>{"nodes.test.", "localhost"}));
  for (const char* bad : {"192.0.2.1:0", "192.0.2.1:99999", "192.0.2", "10.0.0.0/8", "a b", "http://host:2379", ""})
    EXPECT_FALSE(Meeting::parse(std::vector<std::string>{bad}, 2390)) << bad;
}

}  // namespace
}  // namespace idetcd::peers
