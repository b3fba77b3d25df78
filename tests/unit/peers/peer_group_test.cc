#include "peers/peer_group.h"

#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "base/file.h"
#include "net/udp_socket.h"
#include "support/temporary_directory.h"

namespace idetcd::peers {
namespace {

using namespace std::chrono_literals;

// Forked while the process has one thread.
const std::shared_ptr<sandbox::ProgramRunner> peer_group_helper = *sandbox::ProgramRunner::make(sandbox::Mode::kOff);

// A machine that waits for another one: it runs no etcd.
class PeerGroupTest : public testing::Test {
 protected:
  void TearDown() override { thread_->stop(); }

  Result<std::shared_ptr<PeerGroup>> open(bool with_state = true) {
    PeerGroup::Options options;
    options.settings.where = {"127.0.0.1:1"};
    options.settings.expect = 2;
    options.settings.port = kPort;
    if (with_state) options.state = directory_.path();
    options.runtime = directory_ / "run";
    options.addresses = {IpAddress::v4({127, 0, 0, 1})};
    options.metrics = registry_.scope();
    options.on_change = [] {};
    options.on_leave = [this] { left_ = true; };
    options.programs = peer_group_helper;
    options.lease = lease_;
    options.find_addresses = [this]() -> Result<std::vector<IpAddress>> {
      const std::lock_guard lock(mutex_);
      return addresses_;
    };
    return PeerGroup::open(std::move(options), *thread_, Logger());
  }
  // Until it asks for others, or cannot. What it is by then.
  static PeerGroup::Report begun(const std::shared_ptr<PeerGroup>& group) {
    for (int i = 0; i < 3000; ++i) {
      PeerGroup::Report report = group->report();
      if (report.founder.progress.quorum > 0 || (report.trouble != "not started" && !report.trouble.empty()))
        return report;
      std::this_thread::sleep_for(10ms);
    }
    ADD_FAILURE() << "it does not begin";
    return {};
  }
  std::string uuidOfStart() {
    const auto group = open();
    EXPECT_TRUE(group) << group.error().message;
    (*group)->start(0);
    return begun(*group).uuid;
  }
  double metric(std::string_view name) const {
    double value = -1;
    registry_.visit([&](const metrics::Sample& sample) {
      if (sample.family.name == name) value = sample.value;
    });
    return value;
  }

  static constexpr uint16_t kPort = 7;
  std::atomic<bool> left_{false};
  std::mutex mutex_;
  std::vector<IpAddress> addresses_{IpAddress::v4({127, 0, 0, 1})};
  const TemporaryDirectory directory_;
  const metrics::Registry registry_;
  std::chrono::seconds lease_{20};
  std::unique_ptr<etcd::CompletionThread> thread_ = *etcd::CompletionThread::make();
};

TEST_F(PeerGroupTest, AMachineIsTheSameAfterARestart) {
  const std::string first = uuidOfStart();
  EXPECT_EQ(uuidOfStart(), first);
}

TEST_F(PeerGroupTest, ADamagedRecordMakesAnotherMachineWithoutTheFormerData) {
  const std::string first = uuidOfStart();
  const std::string mine = directory_ / "peers-7";
  std::filesystem::create_directories(mine + "/etcd/member");
  ASSERT_TRUE(replaceFile(mine + "/record", "no record"));
  const std::string second = uuidOfStart();
  EXPECT_NE(second, first);
  EXPECT_FALSE(std::filesystem::exists(mine + "/etcd"));
  EXPECT_EQ(uuidOfStart(), second);
}

TEST_F(PeerGroupTest, ARecordOfAnotherMachineIsNone) {
  const std::string first = uuidOfStart();
  const founding::Record foreign{"00000000-0000-4000-8000-000000000001", {}, {}, {}};
  ASSERT_TRUE(replaceFile(directory_ / "peers-7" + "/record", encode(foreign)));
  EXPECT_NE(uuidOfStart(), first);
}

TEST_F(PeerGroupTest, WithoutStateItIsAnotherOneEachTimeAndSilentButForTheFirst) {
  std::set<std::string> uuids;
  for (const bool is_first : {true, false}) {
    const auto group = open(false);
    ASSERT_TRUE(group) << group.error().message;
    (*group)->start(0);
    const auto report = begun(*group);
    uuids.insert(report.uuid);
    EXPECT_EQ(report.founder.progress.silent, !is_first);
  }
  EXPECT_EQ(uuids.size(), 2u);
}

TEST_F(PeerGroupTest, TwoProcessesDoNotShareADirectory) {
  const auto group = open();
  ASSERT_TRUE(group);
  EXPECT_FALSE(open());
}

TEST_F(PeerGroupTest, WhatKeepsItFromBeginningIsSaidAndTriedAgain) {
  const std::string in_the_way = directory_ / "peers-7";
  const auto group = open();
  ASSERT_TRUE(group);
  EXPECT_NE((*group)->report().trouble, "");
  std::filesystem::create_directories(in_the_way + "/record");  // where a file belongs
  (*group)->start(0);
  EXPECT_NE(begun(*group).trouble.find("record"), std::string::npos) << begun(*group).trouble;
  std::filesystem::remove(in_the_way + "/record");
  for (int i = 0; i < 3000 && !(*group)->report().trouble.empty(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ((*group)->report().trouble, "");
}

TEST_F(PeerGroupTest, ItListensWhereTheMachineIsNow) {
  const auto group = open();
  ASSERT_TRUE(group);
  addresses_ = {IpAddress::v4({127, 0, 0, 77})};
  (*group)->start(0);  // the monitor has it look at them
  const auto is_taken = [] { return !net::UdpSocket::bind({IpAddress::v4({127, 0, 0, 77}), kPort}, false); };
  for (int i = 0; i < 3000 && !is_taken(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(is_taken());
  EXPECT_EQ((*group)->report().uuid, begun(*group).uuid);
}

TEST_F(PeerGroupTest, BeforeThereIsAClusterThereIsNothingToAsk) {
  const auto group = open();
  ASSERT_TRUE(group);
  (*group)->start(0);
  begun(*group);
  EXPECT_FALSE((*group)->membership());
  EXPECT_TRUE((*group)->endpoints().empty());
  EXPECT_FALSE((*group)->askVoters(100ms));
  EXPECT_FALSE((*group)->recover());
  EXPECT_EQ(metric("idetcd_peers_member"), 0);
  EXPECT_EQ(metric("idetcd_peers_voters_reached"), 0);
  EXPECT_EQ(metric("idetcd_peers_seen"), 1);
}

// A machine that was told to leave its cluster, and ended before it had.
class PeerGroupThatLeaves : public PeerGroupTest {
 protected:
  PeerGroupThatLeaves() {
    std::filesystem::create_directories(data_ + "/etcd/founding");
    EXPECT_TRUE(
        replaceFile(directory_ / "peers-7/record", encode(founding::Record{uuid_, {}, {}, younger_, {}, older_})));
  }
  void waitUntilLeft() const {
    for (int i = 0; i < 3000 && !left_; ++i) std::this_thread::sleep_for(10ms);
    ASSERT_TRUE(left_);
  }
  void waitUntilMember(PeerGroup& group) const {
    for (int i = 0; i < 3000 && !group.membership(); ++i) std::this_thread::sleep_for(10ms);
    ASSERT_TRUE(group.membership());
    EXPECT_EQ(group.report().founder.cluster, older_);
    EXPECT_FALSE(std::filesystem::exists(data_));
    EXPECT_EQ(metric("idetcd_peers_dissolved_total"), 1);
  }

  const std::string uuid_ = uuidOfStart();
  const std::string other_ = "00000000-0000-4000-8000-000000000001";
  const founding::Voter voter_{other_, {IpAddress::v4({127, 0, 0, 1}), 1}};
  const founding::Value younger_{"00000000-0000-4000-8000-00000000000a", {{2, uuid_}}, {voter_}, 1};
  const founding::Value older_{"00000000-0000-4000-8000-00000000000b", {{1, other_}}, {voter_}, 3};
  const std::string data_ = directory_ / ("peers-7/" + younger_.cluster);
};

TEST_F(PeerGroupThatLeaves, GoesOnAfterARestart) {
  const auto group = open();
  ASSERT_TRUE(group);
  (*group)->start(4);
  waitUntilLeft();
  EXPECT_FALSE((*group)->membership());
  EXPECT_FALSE((*group)->report().founder.cluster);
  EXPECT_TRUE(std::filesystem::exists(data_)) << "its names are not given up yet";
  (*group)->left(0ms, 7);
  waitUntilMember(**group);
  EXPECT_EQ((*group)->membership()->token_base, 8) << "above what was seen";
}

TEST_F(PeerGroupThatLeaves, GoesOnWhereTheMachineIsNow) {
  const auto group = open();
  ASSERT_TRUE(group);
  addresses_ = {IpAddress::v4({127, 0, 0, 77})};
  (*group)->start(4);  // the monitor has it look at them
  waitUntilLeft();
  (*group)->left(0ms, 7);  // of the one that was told before the change, or after it
  const auto is_taken = [] { return !net::UdpSocket::bind({IpAddress::v4({127, 0, 0, 77}), kPort}, false); };
  for (int i = 0; i < 3000 && !is_taken(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(is_taken());
  for (int i = 0; i < 3000 && !(*group)->membership(); ++i) {
    if (left_.exchange(false)) (*group)->left(0ms, 7);  // as who is told again does
    std::this_thread::sleep_for(10ms);
  }
  waitUntilMember(**group);
}

TEST_F(PeerGroupTest, ASecretThatIsTooShortIsSaid) {
  std::ofstream(directory_ / "secret") << "short\n";
  PeerGroup::Options options;
  options.settings.where = {"127.0.0.1:1"};
  options.settings.secret_file = directory_ / "secret";
  options.addresses = {IpAddress::v4({127, 0, 0, 1})};
  options.on_change = [] {};
  options.on_leave = [] {};
  const auto group = PeerGroup::open(std::move(options), *thread_, Logger());
  ASSERT_FALSE(group);
  EXPECT_NE(group.error().message.find("at least 16 are needed"), std::string::npos) << group.error().message;
}

}  // namespace
}  // namespace idetcd::peers
