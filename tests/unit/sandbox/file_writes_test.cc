#include "sandbox/confinement.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace idetcd::sandbox {
namespace {

// One directory may be written and one may not.
class FileWritesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (inChild([] {
          const auto done = allowWritesOnlyBelow({});
          return !done && done.error().code == ErrorCode::kNotFound ? "none" : "";
        }) == "none") {
      GTEST_SKIP() << "no Landlock";
    }
    for (const std::string& directory : {allowed_, forbidden_}) {
      std::filesystem::create_directory(directory);
      overwrite(directory + "/there", "text");
    }
  }

  // How `attempt`, which sets errno if it fails, goes within `directory`.
  std::string attempt(const std::string& directory, const std::function<bool(const std::string&)>& attempt) const {
    return inChild([&]() -> std::string {
      if (!noNewPrivileges() || !allowWritesOnlyBelow({allowed_, directory_ / "not there"})) return "failed";
      return attempt(directory) ? "worked" : strerrorname_np(errno);
    });
  }

  const TemporaryDirectory directory_;
  const std::string allowed_ = directory_ / "allowed";
  const std::string forbidden_ = directory_ / "forbidden";
};

const std::vector<std::pair<const char*, std::function<bool(const std::string&)>>> kWrites{
    {"make", [](const std::string& d) { return creat((d + "/new").c_str(), 0644) >= 0; }},
    {"write", [](const std::string& d) { return open((d + "/there").c_str(), O_WRONLY) >= 0; }},
    {"append", [](const std::string& d) { return open((d + "/there").c_str(), O_RDWR | O_APPEND) >= 0; }},
    {"empty", [](const std::string& d) { return open((d + "/there").c_str(), O_WRONLY | O_TRUNC) >= 0; }},
    {"rename", [](const std::string& d) { return rename((d + "/there").c_str(), (d + "/then").c_str()) == 0; }},
    {"link", [](const std::string& d) { return symlink("there", (d + "/link").c_str()) == 0; }},
    {"remove", [](const std::string& d) { return unlink((d + "/there").c_str()) == 0; }},
};

TEST_F(FileWritesTest, WorkWhereTheyAreAllowedAndNowhereElse) {
  for (const auto& [what, write] : kWrites) {
    EXPECT_EQ(attempt(forbidden_, write), "EACCES") << what;
    overwrite(allowed_ + "/there", "text");
    EXPECT_EQ(attempt(allowed_, write), "worked") << what;
  }
  EXPECT_EQ(contentsOf(forbidden_ + "/there"), "text");
  EXPECT_FALSE(std::filesystem::exists(forbidden_ + "/new"));
}

TEST_F(FileWritesTest, AFileIsReplacedAsTheServerDoesIt) {
  EXPECT_EQ(attempt(allowed_, [](const std::string& d) { return replaceFile(d + "/there", "other").has_value(); }), "worked");
  EXPECT_EQ(contentsOf(allowed_ + "/there"), "other");
}

TEST_F(FileWritesTest, DirectoriesComeAndGoWhereFilesDo) {
  const auto make = [](const std::string& d) { return mkdir((d + "/new").c_str(), 0755) == 0; };
  const auto remove = [](const std::string& d) { return rmdir((d + "/new").c_str()) == 0; };
  EXPECT_EQ(attempt(allowed_, make), "worked");
  EXPECT_EQ(attempt(allowed_, remove), "worked");
  EXPECT_EQ(attempt(forbidden_, make), "EACCES");
  std::filesystem::create_directory(forbidden_ + "/new");
  EXPECT_EQ(attempt(forbidden_, remove), "EACCES");
}

TEST_F(FileWritesTest, WhatNoPartOfTheServerMakesIsMadeNowhere) {
  EXPECT_EQ(attempt(allowed_, [](const std::string& d) { return mkfifo((d + "/new").c_str(), 0644) == 0; }), "EACCES");
}

TEST_F(FileWritesTest, ReadingIsNotRestricted) {
  EXPECT_EQ(attempt(forbidden_, [](const std::string& d) { return readFile(d + "/there", 100) == "text"; }), "worked");
  EXPECT_EQ(attempt("/", [](const std::string&) { return readFile("/etc/passwd", 1 << 20).has_value(); }), "worked");
}

TEST_F(FileWritesTest, WhatIsOpenStaysOpen) {
  const int fd = open((forbidden_ + "/there").c_str(), O_WRONLY);
  EXPECT_EQ(attempt(forbidden_, [fd](const std::string&) { return write(fd, "TEXT", 4) == 4; }), "worked");
  close(fd);
  EXPECT_EQ(contentsOf(forbidden_ + "/there"), "TEXT");
}

}  // namespace
}  // namespace idetcd::sandbox
