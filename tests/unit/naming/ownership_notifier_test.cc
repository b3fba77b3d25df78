#include "naming/ownership_notifier.h"

#include <cstdlib>
#include <fcntl.h>
#include <future>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "support/eventually.h"
#include "support/program_runner.h"
#include "support/temporary_directory.h"

namespace idetcd::naming {
namespace {

// Patterns let no such name pass; the file would be safe all the same.
TEST(RenderIdentity, AShellTakesEveryValueAsItIs) {
  const TemporaryDirectory directory;
  const std::string file = directory / "identity";
  const std::string out = directory / "out";
  for (const std::string odd : {"plain", "", "with space", "it's", "''", "a\nb", "$(touch x)", "`id`", "\\", "\\'",
                                "\"", "*", "~", "#", ";&|<>(){}!", "-n", "\xff\x01\t"}) {
    overwrite(file, renderIdentity({.name = odd, .id = 7, .token = 42, .uuid = odd, .addresses = {}}));
    const std::string command = "cd " + directory.path() + " && . " + file +
                                " && printf '%s|%s|%s|%s|%s.' \"$IDETCD_NAME\" \"$IDETCD_ID\" \"$IDETCD_TOKEN\" " +
                                "\"$IDETCD_UUID\" \"$IDETCD_IPV4$IDETCD_IPV6\" > " + out;
    ASSERT_EQ(std::system(command.c_str()), 0) << odd;
    EXPECT_EQ(contentsOf(out), odd + "|7|42|" + odd + "|.");
    EXPECT_EQ(contentsOf(directory / "x"), "") << "a command was run";
  }
}

// The strand is busy for as long as the test wants, as with a disk that stands still.
class BusyNotifierTest : public testing::Test {
 protected:
  void SetUp() override {
    auto state = node::StateDirectory::open({.directory = directory_ / "state", .pattern = "w{{.ID}}.tf."}, {});
    ASSERT_TRUE(state) << state.error().message;
    state_ = *state;
    files_->submit([go = go_.get_future().share()] { go.wait(); });
  }
  void makeNotifier(const std::string& script, std::chrono::seconds ready_timeout = std::chrono::seconds(1)) {
    notifier_ = std::make_unique<OwnershipNotifier>(
        state_,
        node::ClaimHook::Options{
            .command = {"sh", "-c", script}, .runner = test_support::program_runner, .ready_timeout = ready_timeout},
        files_, counters_, Logger());
  }
  void TearDown() override {
    if (!released_) release();
    notifier_->finish(std::chrono::seconds(60));
  }
  void release() {
    released_ = true;
    go_.set_value();
    executor_.finish(std::chrono::seconds(30));
  }
  static NamedNode node(int64_t id) {
    return {.name = "w" + std::to_string(id) + ".tf.", .id = id, .token = id, .uuid = "u", .addresses = {}};
  }

  const TemporaryDirectory directory_;
  const std::string out_ = directory_ / "out";
  std::promise<void> go_;
  bool released_ = false;
  std::shared_ptr<node::StateDirectory> state_;
  Executor executor_;
  const std::shared_ptr<Executor::Strand> files_ = executor_.makeStrand();
  FileCounters counters_;
  std::unique_ptr<OwnershipNotifier> notifier_;
};

TEST_F(BusyNotifierTest, AProgramDoesNotWaitForADisk) {
  makeNotifier("echo $IDETCD_EVENT $IDETCD_NAME >> " + out_);
  notifier_->claimed(node(1));
  EXPECT_TRUE(eventually([&] { return contentsOf(out_) == "claim w1.tf.\n"; }));
  notifier_->lost(node(1));
  EXPECT_TRUE(eventually([&] { return contentsOf(out_) == "claim w1.tf.\nloss w1.tf.\n"; }));
  EXPECT_EQ(contentsOf(state_->identityFile()), "");
}

TEST_F(BusyNotifierTest, TheLastIsWhatIsWritten) {
  makeNotifier(":");
  for (int64_t id = 1; id < 20; ++id) {
    notifier_->claimed(node(id));
    notifier_->lost(node(id));
  }
  notifier_->claimed(node(20));
  release();
  EXPECT_EQ(contentsOf(state_->identityFile()), renderIdentity(node(20)));
  EXPECT_EQ(state_->node().name, "w20.tf.");
}

// What replaces the file waits for a FIFO that nobody reads.
TEST_F(BusyNotifierTest, ALossFindsTheFileEmptyOnASlowDisk) {
  makeNotifier("(echo $IDETCD_EVENT; cat " + state_->identityFile() + ") >> " + out_, std::chrono::seconds(10));
  go_.set_value();
  released_ = true;
  notifier_->claimed(node(1));
  const std::string claimed = "claim\n" + renderIdentity(node(1));
  ASSERT_TRUE(eventually([&] { return contentsOf(out_) == claimed; }));
  const std::string replacement = state_->identityFile() + ".new";
  ASSERT_EQ(mkfifo(replacement.c_str(), 0600), 0);
  notifier_->lost(node(1));
  EXPECT_TRUE(eventually([&] { return contentsOf(out_).size() > claimed.size(); }));
  const FileDescriptor reader(open(replacement.c_str(), O_RDONLY | O_CLOEXEC));
  executor_.finish(std::chrono::seconds(30));
  EXPECT_EQ(contentsOf(out_), claimed + "loss\n");
}

// Whoever waits for it may give the name away then.
TEST_F(BusyNotifierTest, ALossIsDoneWhenTheFileIsEmptyAndTheProgramHasEnded) {
  makeNotifier("echo $IDETCD_EVENT >> " + out_ + "; until [ $IDETCD_EVENT = claim -o -e " + out_ +
               ".go ]; do sleep 0.01; done");
  std::promise<std::string> done;
  auto identity_then = done.get_future();
  notifier_->claimed(node(1));
  ASSERT_TRUE(eventually([&] { return contentsOf(out_) == "claim\n"; }));
  notifier_->lost(node(1), [this, &done] { done.set_value(contentsOf(state_->identityFile())); });
  release();
  EXPECT_EQ(identity_then.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);  // nothing happens
  overwrite(out_ + ".go", "");
  EXPECT_EQ(identity_then.get(), "");
}

TEST_F(BusyNotifierTest, ALeaseIsKeptWhenItSaysSo) {
  makeNotifier(":");
  std::promise<void> kept;
  notifier_->leased(7, {41, 42}, [&kept] { kept.set_value(); });
  EXPECT_EQ(kept.get_future().wait_for(std::chrono::milliseconds(50)), std::future_status::timeout) << "a busy disk";
  release();
  EXPECT_EQ(state_->node().leases, (std::vector<int64_t>{41, 42}));
  EXPECT_EQ(state_->node().cluster_id, 7u);
}

// Directories in the place of the files that are written first fail as a full disk does.
TEST_F(BusyNotifierTest, WhatCannotBeWrittenIsWrittenLater) {
  makeNotifier(":");
  go_.set_value();
  released_ = true;
  const std::string json = directory_ / "state/" + node::fileStem("w{{.ID}}.tf.") + ".json";
  const std::string env = state_->identityFile();
  for (const std::string& file : {json, env}) ASSERT_EQ(mkdir((file + ".new").c_str(), 0700), 0);
  notifier_->claimed(node(1));
  files_->drain();
  EXPECT_FALSE(notifier_->isWritten());
  EXPECT_EQ(counters_.save_failures.value(), 2u);
  ASSERT_EQ(rmdir((json + ".new").c_str()), 0);
  notifier_->writeAgain();
  files_->drain();
  EXPECT_NE(contentsOf(json).find("w1.tf."), std::string::npos);
  EXPECT_FALSE(notifier_->isWritten()) << "the other one is not";
  ASSERT_EQ(rmdir((env + ".new").c_str()), 0);
  notifier_->writeAgain();
  files_->drain();
  EXPECT_TRUE(notifier_->isWritten());
  EXPECT_EQ(contentsOf(env), renderIdentity(node(1)));
  executor_.finish(std::chrono::seconds(30));
}

TEST_F(BusyNotifierTest, AProgramFindsTheFileAsItIsTold) {
  makeNotifier("cat " + state_->identityFile() + " > " + out_, std::chrono::seconds(60));
  notifier_->claimed(node(7));
  release();
  EXPECT_TRUE(eventually([&] { return contentsOf(out_) == renderIdentity(node(7)); }));
}

}  // namespace
}  // namespace idetcd::naming
