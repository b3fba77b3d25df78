#include "base/file.h"

#include <fcntl.h>
#include <future>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/temporary_directory.h"

namespace idetcd {
namespace {

class FileTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "file";
};

TEST_F(FileTest, IsReadWholeOrNotAtAll) {
  const std::string contents(10000, 'x');
  overwrite(path_, contents);
  EXPECT_EQ(readFile(path_, 10000).value(), contents);
  EXPECT_EQ(readFile(path_, 9999).error().message, "larger than 9999 bytes");
  overwrite(path_, "");
  EXPECT_EQ(readFile(path_, 0).value(), "");
}

TEST_F(FileTest, WhatCannotBeReadIsSaid) {
  const Error missing = readFile(path_, 10).error();
  EXPECT_EQ(missing.message, "No such file or directory");
  EXPECT_EQ(missing.code, ErrorCode::kNotFound);
  const Error directory = readFile(directory_.path(), 10).error();
  EXPECT_EQ(directory.message, "not a regular file");
  EXPECT_EQ(directory.code, ErrorCode::kOther);
}

TEST_F(FileTest, AFifoHoldsUpNobody) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(readFile(path_, 10).error().message, "not a regular file");
}

TEST_F(FileTest, APipeIsReadToItsEnd) {
  for (const size_t size : {3u, 4096u, 20000u}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const FileDescriptor out(ends[0]);
    const std::string contents(size, 'x');
    {
      const FileDescriptor in(ends[1]);
      ASSERT_EQ(write(in.get(), contents.data(), size), static_cast<ssize_t>(size));
    }
    EXPECT_EQ(readToEnd(out, size).value(), contents);
  }
}

TEST_F(FileTest, AFifoIsWaitedForNoLongerThanItsPatience) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const FileDescriptor out(open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto read = [&out](int ms) { return readToEnd(out, 100, std::chrono::milliseconds(ms)); };
  EXPECT_EQ(read(10).error().message, "nobody writes into it");
  auto late = std::async(std::launch::async, [&] { return read(10'000); });
  FileDescriptor in(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(write(in.get(), "text", 4), 4);
  in = FileDescriptor();
  EXPECT_EQ(late.get().value(), "text");
  in = FileDescriptor(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(write(in.get(), "text", 4), 4);
  EXPECT_EQ(read(10).error().message, "its writer stands still");
}

TEST_F(FileTest, AStampShowsAnotherFileOfTheSameName) {
  EXPECT_EQ(FileStamp::of(path_), std::nullopt);
  overwrite(path_, "one");
  const auto before = FileStamp::of(path_);
  ASSERT_TRUE(before);
  EXPECT_EQ(FileStamp::of(path_), before);
  ASSERT_TRUE(replaceFile(path_, "two"));
  EXPECT_NE(FileStamp::of(path_), before);
}

TEST_F(FileTest, AReplacementThatIsNotCommittedLeavesNothing) {
  overwrite(path_, "one");
  {
    auto begun = FileReplacement::begin(path_);
    ASSERT_TRUE(begun && begun->append("two"));
    const FileReplacement moved = std::move(*begun);
  }
  EXPECT_EQ(contentsOf(path_), "one");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(FileTest, ADirectoryInItsPlaceIsNamed) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(replaceFile(path_, "x").error().message, "cannot replace " + path_ + ": Is a directory");
}

TEST_F(FileTest, ADirectoryIsGoneAsAWholeBeforeAnythingInIt) {
  const std::string removed = path_ + ".removed";
  EXPECT_TRUE(removeDirectory(path_, removed)) << "it is not there";
  for (const std::string& one : {path_, removed}) {
    ASSERT_TRUE(makeDirectory(one + "/inner"));
    overwrite(one + "/inner/file", "one");
  }
  const FileDescriptor seen(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(seen.get(), path_.c_str(), IN_MOVE_SELF | IN_DELETE), 0);
  EXPECT_TRUE(removeDirectory(path_, removed));
  inotify_event first{};
  ASSERT_GE(read(seen.get(), &first, sizeof(first)), 0);
  EXPECT_EQ(first.mask, static_cast<uint32_t>(IN_MOVE_SELF));
  EXPECT_FALSE(std::filesystem::exists(path_) || std::filesystem::exists(removed));
}

TEST_F(FileTest, ADirectoryIsGoneThoughTheDiskRefusesToDeleteWhatIsInIt) {
  const std::string removed = path_ + ".removed";
  std::string deep = path_;
  for (int level = 0; level < 64; ++level) deep += "/inner";
  ASSERT_TRUE(makeDirectory(deep));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const FileDescriptor next(dup(STDERR_FILENO));
  const rlimit few{static_cast<rlim_t>(next.get()) + 16, before.rlim_max};  // each level takes one
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto done = removeDirectory(path_, removed);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(done);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_TRUE(std::filesystem::exists(removed)) << "else nothing was refused";
  EXPECT_TRUE(removeDirectory(path_, removed));
  EXPECT_FALSE(std::filesystem::exists(removed));
}

TEST_F(FileTest, ADirectoryHasItsModeAlsoWithASlashBehind) {
  const std::string inner = path_ + "/inner";
  ASSERT_TRUE(makeDirectory(inner + "/", 0700));
  struct stat made {};
  ASSERT_EQ(stat(inner.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0700u);
  EXPECT_TRUE(makeDirectory(inner, 0700)) << "it is there";
  overwrite(inner + "/file", "one");
  EXPECT_EQ(makeDirectory(inner + "/file").error().message, "Not a directory");
}

}  // namespace
}  // namespace idetcd
