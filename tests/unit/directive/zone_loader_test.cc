#include "directive/file/zone_loader.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <thread>

#include <gtest/gtest.h>

#include "support/eventually.h"
#include "support/metric_values.h"
#include "support/temporary_directory.h"

namespace idetcd::directive {
namespace {

constexpr std::string_view kText = "$TTL 1\n@ SOA ns m {} 1 1 1 1\n@ NS ns\nns A 192.0.2.1\n";

class ZoneLoaderTest : public testing::Test {
 protected:
  void TearDown() override { executor_->finish(std::chrono::seconds(60)); }
  ZoneLoader loader(bool is_served_empty = true, std::chrono::milliseconds reload = std::chrono::milliseconds(0)) {
    return ZoneLoader({.path = directory_ / "db",
                       .origin = dns::Name::parse("example.").value(),
                       .reload = reload,
                       .is_served_empty = is_served_empty},
                      {set_, executor_, Logger{}, registry_.scope()});
  }
  void write(uint32_t serial) { overwrite(directory_ / "db", fmt::format(fmt::runtime(kText), serial)); }
  const ServedZone* served() {
    table_ = set_->table();
    return table_->find(dns::Name::parse("a.example.").value().wire());
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  const std::shared_ptr<ZoneSet> set_ = std::make_shared<ZoneSet>(HashSeed{7});
  metrics::Registry registry_;
  net::EventLoop loop_;
  records::EpochDomain epochs_;
  resolve::Process process_{Logger(), loop_, epochs_};
  KeptZones kept_{process_};
  std::shared_ptr<const ZoneTable> table_;
};

TEST_F(ZoneLoaderTest, AZoneComesIntoTheSet) {
  write(5);
  auto zone = loader();
  ASSERT_TRUE(zone.load());
  ASSERT_NE(served(), nullptr);
  EXPECT_EQ(served()->zone->serial(), 5u);
  const auto metrics = test_support::valuesOf(registry_);
  EXPECT_EQ(metrics.at("idetcd_zone_loads_total{zone=\"example.\"}"), 1);
  EXPECT_EQ(metrics.at("idetcd_zone_serial{zone=\"example.\"}"), 5);
  EXPECT_EQ(metrics.at("idetcd_zone_names{zone=\"example.\"}"), 2);
}

TEST_F(ZoneLoaderTest, AFileThatIsNotThere) {
  auto empty = loader();
  const auto missing = empty.load();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  ASSERT_NE(served(), nullptr);
  EXPECT_EQ(served()->zone, nullptr) << "SERVFAIL";
  EXPECT_EQ(test_support::sumOf(registry_, "idetcd_zone_load_failures_total"), 1);
  set_->erase(dns::Name::parse("example.").value());
  EXPECT_FALSE(loader(false).load());
  EXPECT_EQ(served(), nullptr);
}

// As with a reload of the Corefile: the next loader comes before the last one has gone.
TEST_F(ZoneLoaderTest, TheNextLoaderGoesOnWithTheLastZoneOfItsFile) {
  const auto next = std::make_shared<ZoneSet>(HashSeed{7});
  const auto loaderOf = [&](const std::shared_ptr<ZoneSet>& set, const std::string& file) {
    return ZoneLoader({.path = directory_ / file, .origin = dns::Name::parse("example.").value(), .reload = {}, .is_served_empty = false},
                      {set, executor_, Logger{}, registry_.scope(), &kept_});
  };
  write(5);
  auto last = loaderOf(set_, "db");
  ASSERT_TRUE(last.load());
  EXPECT_FALSE(last.usesKept());
  for (const bool is_there : {true, false}) {
    is_there ? overwrite(directory_ / "db", "nonsense\n") : static_cast<void>(std::filesystem::remove(directory_ / "db"));
    auto again = loaderOf(next, "db");
    const auto loaded = again.load();
    ASSERT_FALSE(loaded) << "the error is not hidden";
    EXPECT_TRUE(again.usesKept());
    ASSERT_NE(next->table()->only(), nullptr);
    EXPECT_EQ(next->table()->only()->zone->serial(), 5u);
    next->erase(dns::Name::parse("example.").value());
  }
  auto other = loaderOf(next, "other");
  EXPECT_FALSE(other.load());
  EXPECT_FALSE(other.usesKept()) << "it is another file";
  EXPECT_EQ(next->table()->only(), nullptr);
}

// The Corefile is reloaded, or the file has changed; where nobody has the zone from here, nothing is kept.
TEST_F(ZoneLoaderTest, ChangesAreKeptForThoseToWhomTheZoneIsTransferred) {
  const dns::Name origin = dns::Name::parse("example.").value();
  const auto loaderOf = [&](const std::shared_ptr<ZoneSet>& set, bool keeps_changes) {
    return ZoneLoader({.path = directory_ / "db", .origin = origin, .reload = std::chrono::milliseconds(1)},
                      {set, executor_, Logger{}, registry_.scope(), &kept_, keeps_changes});
  };
  const auto changesSince = [&](const std::shared_ptr<ZoneSet>& set, uint32_t serial) {
    return set->changesSince(origin.wire(), serial, IpAddress::v4({192, 0, 2, 1}));
  };
  write(5);
  auto last = loaderOf(set_, true);
  ASSERT_TRUE(last.load());
  EXPECT_EQ(changesSince(set_, 5), nullptr);
  write(6);
  ASSERT_TRUE(eventually([&] { return served()->zone->serial() == 6; }));
  ASSERT_NE(changesSince(set_, 5), nullptr);
  EXPECT_EQ(changesSince(set_, 5)->serial(), 6u);
  const auto next = std::make_shared<ZoneSet>(HashSeed{7});
  write(7);
  auto again = loaderOf(next, true);
  ASSERT_TRUE(again.load());
  ASSERT_NE(changesSince(next, 5), nullptr);
  EXPECT_EQ(changesSince(next, 5)->serial(), 7u);
  const auto without = std::make_shared<ZoneSet>(HashSeed{7});
  auto plain = loaderOf(without, false);
  ASSERT_TRUE(plain.load());
  EXPECT_EQ(changesSince(without, 5), nullptr);
}

TEST_F(ZoneLoaderTest, AFileThatCouldNotBeReadIsTriedAgain) {
  const auto isSettled = [&](const std::string& path) {
    zones::ZoneBuilder builder(dns::Name::parse("example.").value(), 7);
    std::vector<zones::ReadFile> files;
    const auto read = zones::readZoneFile(path, builder, files);
    constexpr time_t kLongAfter = 3600;
    return areSettled(files, time(nullptr) + kLongAfter);
  };
  write(5);
  EXPECT_TRUE(isSettled(directory_ / "db"));
  EXPECT_TRUE(isSettled(directory_ / "nothing")) << "shows in the stamp when it comes";
  EXPECT_FALSE(isSettled(directory_.path())) << "it cannot be read, and its stamp is old";
  overwrite(directory_ / "db", "$INCLUDE sub\n");
  std::filesystem::create_directory(directory_ / "sub");
  EXPECT_FALSE(isSettled(directory_ / "db")) << "nor can what it includes";
}

// Of a file whose stamp changes all the time, while its content stays.
TEST_F(ZoneLoaderTest, WhatWasReadWhileTheStampChangedComesIntoUseLater) {
  write(1);
  auto zone = loader(true, std::chrono::milliseconds(1));
  ASSERT_TRUE(zone.load());
  const std::string next = directory_ / "next";
  overwrite(next, fmt::format(fmt::runtime(kText), 2) + "$GENERATE 1-20000 h$ A 192.0.2.1\n");
  const FileDescriptor file(open(next.c_str(), O_RDONLY | O_CLOEXEC));
  const FileDescriptor openings(inotify_init1(IN_CLOEXEC));
  ASSERT_GE(inotify_add_watch(openings.get(), next.c_str(), IN_OPEN), 0);
  std::atomic<bool> is_read{false};
  std::thread touching([&] {
    for (time_t stamp = 0; !is_read; ++stamp) {
      const std::array<timespec, 2> times{timespec{0, UTIME_OMIT}, timespec{stamp, 0}};
      futimens(file.get(), times.data());
    }
  });
  EXPECT_EQ(rename(next.c_str(), (directory_ / "db").c_str()), 0);
  // The second reading begins when the first one has come to nothing.
  for (int readings = 0; readings < 2;) {
    std::array<char, 4096> events;
    const ssize_t size = ::read(openings.get(), events.data(), events.size());
    if (size <= 0) break;
    readings += static_cast<int>(static_cast<size_t>(size) / sizeof(inotify_event));
  }
  is_read = true;
  touching.join();
  EXPECT_TRUE(eventually([&] { return served()->zone->serial() == 2; }));
}

TEST(ZoneTable, TheLongestZoneHasTheName) {
  ZoneSet set(7);
  const auto name = [](std::string_view text) { return dns::Name::parse(text).value(); };
  for (const char* origin : {"a.", "b.a.", "c."}) set.put({name(origin), {}});
  const auto find = [&](std::string_view text) {
    const auto* found = set.table()->find(name(text).wire());
    return found != nullptr ? found->origin.toString() : "none";
  };
  EXPECT_EQ(find("x.b.a."), "b.a.");
  EXPECT_EQ(find("b.a."), "b.a.");
  EXPECT_EQ(find("x.xb.a."), "a.");
  EXPECT_EQ(find("d."), "none");
  EXPECT_EQ(find("."), "none");
  const auto a = name("a.");
  EXPECT_TRUE(set.table()->isAbove(hashBytes(a.data(), a.size(), 7)));
  set.erase(name("b.a."));
  EXPECT_EQ(find("x.b.a."), "a.");
  set.erase(name("a."));
  EXPECT_EQ(find("x.c."), "c.") << "one is found without its hash";
  EXPECT_EQ(find("x.b.a."), "none");
}

}  // namespace
}  // namespace idetcd::directive
