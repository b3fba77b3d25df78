#include "naming/saved_names.h"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <string>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "records/member_data.h"
#include "support/temporary_directory.h"

namespace idetcd::naming {
namespace {

constexpr const char* kPattern = "worker{{.ID}}.tf.local.";
constexpr int64_t kNow = 1'800'000'000;

class SavedNamesTest : public testing::Test {
 protected:
  void put(const std::string& name, const char* ipv4, const char* ipv6, int64_t revision) {
    records::HostAddresses addresses;
    if (ipv4 != nullptr) addresses.ipv4 = IpAddress::parse(ipv4);
    if (ipv6 != nullptr) addresses.ipv6 = IpAddress::parse(ipv6);
    store_.put(dns::Name::parse(name).value(), addresses, revision);
  }
  Result<size_t> save() {
    return saveNames(path_, kPattern, store_, kNow, [] { return false; });
  }
  Result<std::optional<LoadedNames>> load(const std::string& pattern = kPattern) {
    loaded_.clear();
    return loadNames(path_, pattern, [this](const SavedName& saved) {
      const auto text = [](const std::optional<IpAddress>& ip) { return ip ? " " + ip->toString() : ""; };
      loaded_[saved.name.toString()] =
          std::to_string(saved.mod_revision) + text(saved.addresses.ipv4) + text(saved.addresses.ipv6);
    });
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "names";
  records::EpochDomain epochs_;
  records::RecordStore store_{
      epochs_, {.zone = dns::Name::parse("tf.local.").value(), .addresses = {IpAddress::parse("192.0.2.2").value()}}};
  std::map<std::string, std::string> loaded_;
};

TEST_F(SavedNamesTest, ComeBackAsTheyWere) {
  put("worker1.tf.local.", "192.0.2.1", "fd00::1", 5);
  put("worker2.tf.local.", "192.0.2.2", nullptr, 6);
  put("worker3.tf.local.", nullptr, "fd00::3", 7);
  put("a.b.c.tf.local.", nullptr, nullptr, 8);
  const std::string longest =
      std::string(63, 'x') + "." + std::string(63, 'y') + "." + std::string(63, 'z') + "." + std::string(61, 'w') + ".";
  put(longest, "192.0.2.9", nullptr, int64_t{1} << 40);
  ASSERT_EQ(save().value(), 5u);  // and neither the name server nor what lies between
  const auto read = load();
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->count, 5u);
  EXPECT_EQ((*read)->written_at_seconds, kNow);
  EXPECT_EQ(loaded_, (std::map<std::string, std::string>{{"worker1.tf.local.", "5 192.0.2.1 fd00::1"},
                                                         {"worker2.tf.local.", "6 192.0.2.2"},
                                                         {"worker3.tf.local.", "7 fd00::3"},
                                                         {"a.b.c.tf.local.", "8"},
                                                         {longest, "1099511627776 192.0.2.9"}}));
}

TEST_F(SavedNamesTest, WhatAMemberSaysOfItselfComesBack) {
  const std::vector<records::Service> services{{.name = "http", .port = 80}};
  const auto data = records::memberData("6c3e0f1a-0000-4000-8000-0123456789ab", 7, services);
  store_.put(dns::Name::parse("worker1.tf.local.").value(), {.ipv4 = IpAddress::parse("192.0.2.1"), .ipv6 = {}}, 5,
             data);
  put("worker2.tf.local.", "192.0.2.2", nullptr, 6);
  ASSERT_EQ(save().value(), 2u);
  std::map<std::string, std::vector<uint8_t>> members;
  ASSERT_TRUE(
      loadNames(path_, kPattern, [&](const SavedName& saved) { members[saved.name.toString()] = saved.member; }));
  EXPECT_EQ(members,
            (std::map<std::string, std::vector<uint8_t>>{{"worker1.tf.local.", data}, {"worker2.tf.local.", {}}}));
}

TEST_F(SavedNamesTest, NoFileIsNoError) {
  const auto read = load();
  ASSERT_TRUE(read);
  EXPECT_FALSE(*read);
}

TEST_F(SavedNamesTest, AFileCutOffAnywhereIsRefused) {
  put("worker1.tf.local.", "192.0.2.1", "fd00::1", 5);
  put("worker2.tf.local.", "192.0.2.2", nullptr, 6);
  ASSERT_TRUE(save());
  const std::string good = contentsOf(path_);
  for (size_t size = 0; size < good.size(); ++size) {
    overwrite(path_, good.substr(0, size));
    ASSERT_FALSE(load()) << size;
    ASSERT_TRUE(loaded_.empty());
  }
  overwrite(path_, good + "x");
  EXPECT_FALSE(load());
}

TEST_F(SavedNamesTest, EveryFlippedBitIsFound) {
  put("worker1.tf.local.", "192.0.2.1", "fd00::1", 5);
  ASSERT_TRUE(save());
  const std::string good = contentsOf(path_);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    overwrite(path_, bad);
    ASSERT_FALSE(load()) << bit;
    ASSERT_TRUE(loaded_.empty());
  }
}

TEST_F(SavedNamesTest, AnotherPatternAnotherKindAndAGiantAreRefused) {
  put("worker1.tf.local.", "192.0.2.1", nullptr, 5);
  ASSERT_TRUE(save());
  EXPECT_FALSE(load("node{{.ID}}.tf.local."));
  EXPECT_FALSE(load(std::string(kPattern) + "x"));
  overwrite(path_, "IDETCD_NAME='worker1'\n");
  EXPECT_FALSE(load());
  std::filesystem::resize_file(path_, (uint64_t{2} << 30) + 1);
  EXPECT_FALSE(load());
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(load());
}

TEST_F(SavedNamesTest, WhatFailsOrIsAbandonedLeavesTheOldFile) {
  put("worker1.tf.local.", "192.0.2.1", nullptr, 5);
  ASSERT_TRUE(save());
  const std::string good = contentsOf(path_);
  for (int i = 0; i < 3000; ++i) put("n" + std::to_string(i) + ".tf.local.", "192.0.2.1", nullptr, 6 + i);
  EXPECT_FALSE(saveNames(path_, kPattern, store_, kNow, [] { return true; }));
  EXPECT_EQ(contentsOf(path_), good);
  EXPECT_FALSE(saveNames(directory_ / "no/names", kPattern, store_, kNow, [] { return false; }));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(SavedNamesTest, AreSavedWhileTheyChange) {
  std::atomic<bool> done{false};
  constexpr int kSteady = 500;
  for (int i = 0; i < kSteady; ++i) put("s" + std::to_string(i) + ".tf.local.", "192.0.2.1", nullptr, 1);
  std::thread saver([&] {
    while (!done) EXPECT_GE(save().value(), static_cast<size_t>(kSteady));
  });
  int64_t revision = 2;
  for (int round = 0; round < 20; ++round) {  // the table grows, names come, change and go
    for (int i = 0; i < 1000; ++i) put("n" + std::to_string(i) + ".tf.local.", "192.0.2.7", "fd00::7", revision++);
    for (int i = 0; i < 1000; i += 2)
      store_.remove(dns::Name::parse("n" + std::to_string(i) + ".tf.local.").value(), revision++);
  }
  done = true;
  saver.join();
  ASSERT_EQ(save().value(), kSteady + 500u);
  ASSERT_TRUE(load());
  EXPECT_EQ(loaded_.size(), kSteady + 500u);
}

// A FIFO without a reader stands for a disk that stands still.
TEST_F(SavedNamesTest, ADiskThatStandsStillHoldsNoMemoryBack) {
  constexpr int kNames = 60'000;  // more than a pipe and the buffer take
  for (int i = 0; i < kNames; ++i) put("n" + std::to_string(i) + ".tf.local.", "192.0.2.1", "fd00::1", 1 + i);
  const std::string fifo = path_ + ".new";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  std::thread saver([&] { EXPECT_FALSE(save()) << "a FIFO cannot be synchronised"; });
  // The pipe is as full as it gets: the saver waits.
  const auto filled = [reader] {
    int bytes = 0;
    ioctl(reader, FIONREAD, &bytes);
    return bytes;
  };
  while (filled() < fcntl(reader, F_GETPIPE_SZ)) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i)
    store_.remove(dns::Name::parse("n" + std::to_string(i) + ".tf.local.").value(), kNames);
  EXPECT_EQ(epochs_.reclaim(), 0u);
  fcntl(reader, F_SETFL, 0);
  char bytes[1 << 16];
  while (read(reader, bytes, sizeof bytes) > 0) {
  }
  saver.join();
  close(reader);
}

}  // namespace
}  // namespace idetcd::naming
