#include "directive/auto/zone_folder.h"

#include <gtest/gtest.h>

#include "support/eventually.h"
#include "support/temporary_directory.h"

namespace idetcd::directive {
namespace {

std::string origin(const std::string& file, const std::string& pattern = R"(db\.(.*))", std::string_view text = "{1}") {
  const auto name = originOfFile(file, re2::RE2(pattern), text);
  return name ? name->toString() : "none";
}

TEST(ZoneFolder, NamesOfZonesFromThoseOfFiles) {
  EXPECT_EQ(origin("db.example.org"), "example.org.");
  EXPECT_EQ(origin("old-db.example.org"), "example.org.") << "a part of the name, as in CoreDNS";
  EXPECT_EQ(origin("readme"), "none");
  EXPECT_EQ(origin("db."), "none");
  EXPECT_EQ(origin("db.a..b"), "none");
  EXPECT_EQ(origin("a-b.zone", "^(.*)-(.*)\\.zone$", "{2}.{1}.net"), "b.a.net.");
  EXPECT_EQ(origin("x", "(x)|(y)", "{1}{2}.{9}a"), "x.a.");
  EXPECT_EQ(origin("x", "x", "{0}.{no}"), "x.{no}.");
}

class ZoneFolderTest : public testing::Test {
 protected:
  void TearDown() override { executor_->finish(std::chrono::seconds(60)); }
  void write(const std::string& file) {
    overwrite(directory_ / file, "$TTL 1\n@ SOA ns m 1 1 1 1 1\n@ NS ns\nns A 192.0.2.1\n");
  }
  bool serves(std::string_view zone) const {
    const auto table = set_->table();
    return table->find(dns::Name::parse(zone).value().wire()) != nullptr;
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  const std::shared_ptr<ZoneSet> set_ = std::make_shared<ZoneSet>(HashSeed{7});
  metrics::Registry registry_;
  ZoneFolder folder_{{.directory = directory_.path(), .zones = {dns::Name()}, .reload = std::chrono::milliseconds(1)},
                     {set_, executor_, Logger{}, registry_.scope()}};
};

// A link that leads to itself cannot be looked at, not by root either.
TEST_F(ZoneFolderTest, ZonesStayWhileSomethingCannotBeRead) {
  write("db.a");
  write("db.b");
  folder_.load();
  ASSERT_TRUE(serves("a."));
  ASSERT_TRUE(serves("b."));
  std::filesystem::create_symlink("db.a", directory_ / "link");
  std::filesystem::rename(directory_ / "link", directory_ / "db.a");
  std::filesystem::remove(directory_ / "db.b");
  write("db.c");
  EXPECT_TRUE(eventually([&] { return serves("c."); })) << "what can be read is served";
  EXPECT_TRUE(serves("a."));
  EXPECT_TRUE(serves("b.")) << "it may be in what cannot be read";
  std::filesystem::remove(directory_ / "db.a");
  EXPECT_TRUE(eventually([&] { return !serves("a.") && !serves("b."); }));
  EXPECT_TRUE(serves("c."));
}

TEST_F(ZoneFolderTest, AFileThatIsMissedOnceIsNotGone) {
  ZoneFolder folder({.directory = directory_.path(), .zones = {dns::Name()}, .reload = std::chrono::milliseconds(0)},
                    {set_, executor_, Logger{}, registry_.scope()});
  write("db.a");
  folder.load();
  for (int round = 0; round < 2; ++round) {
    std::filesystem::rename(directory_ / "db.a", directory_ / "away");
    folder.look();
    EXPECT_TRUE(serves("a.")) << "it may be on its way back";
    std::filesystem::rename(directory_ / "away", directory_ / "db.a");
    folder.look();
    EXPECT_TRUE(serves("a."));
  }
  std::filesystem::remove(directory_ / "db.a");
  folder.look();
  folder.look();
  EXPECT_FALSE(serves("a."));
}

TEST_F(ZoneFolderTest, ZonesOfAFolderThatCannotBeEntered) {
  std::filesystem::create_directory(directory_ / "sub");
  write("sub/db.a");
  folder_.load();
  ASSERT_TRUE(serves("a."));
  std::filesystem::permissions(directory_ / "sub", std::filesystem::perms::none);  // is nothing to root
  write("db.b");
  EXPECT_TRUE(eventually([&] { return serves("b."); }));
  EXPECT_TRUE(serves("a."));
  std::filesystem::permissions(directory_ / "sub", std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace idetcd::directive
