#include "node/state_directory.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "node/uuid.h"
#include "support/temporary_directory.h"

namespace idetcd::node {
namespace {

constexpr const char* kPattern = "worker{{.ID}}.tf.local.";

class StateDirectoryTest : public testing::Test {
 protected:
  StateDirectory::Options options(const std::string& pattern = kPattern) {
    return {.directory = directory_ / "state", .pattern = pattern, .machine_id_file = directory_ / "machine-id"};
  }
  Result<std::shared_ptr<StateDirectory>> open() { return StateDirectory::open(options(), {}); }
  // As a process that goes on with it.
  std::shared_ptr<StateDirectory> taken() {
    std::shared_ptr<StateDirectory> state = open().value();
    EXPECT_TRUE(state->take());
    state->linkIdentity(true);
    return state;
  }
  std::string file(const std::string& ending) { return directory_ / "state/" + fileStem(kPattern) + ending; }

  TemporaryDirectory directory_;
};

TEST(FileStem, IsReadableAndDiffersWithEveryPattern) {
  EXPECT_EQ(fileStem(kPattern).substr(0, 19), "worker-ID.tf.local-");
  EXPECT_NE(fileStem("a{{.ID}}."), fileStem("a-{{.ID}}."));
  EXPECT_NE(fileStem("a{{.ID}}."), fileStem("a{{.ID}}"));
  EXPECT_EQ(fileStem("{{.ID}}.x.").substr(0, 5), "ID.x-");
  for (const std::string& stem : {fileStem("../../{{.ID}}"), fileStem(std::string(500, '{')), fileStem("")}) {
    EXPECT_EQ(stem.find('/'), std::string::npos) << stem;
    EXPECT_NE(stem[0], '.') << stem;
    EXPECT_LT(stem.size(), 150u);
  }
}

TEST_F(StateDirectoryTest, LooksWithoutChangingAnything) {
  EXPECT_EQ(StateDirectory::look(options()).value(), RememberedNode{});
  EXPECT_FALSE(std::filesystem::exists(directory_ / "state")) << "nothing is made";
  const auto state = taken();
  RememberedNode node = state->node();
  node.name = "worker7.tf.local.";
  ASSERT_TRUE(state->remember(node));
  const auto found = StateDirectory::look(options());  // although another one has the files
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->uuid, node.uuid);
  EXPECT_EQ(found->name, node.name);
  std::ofstream(file(".json")) << "{";
  EXPECT_FALSE(StateDirectory::look(options()));
}

TEST_F(StateDirectoryTest, KeepsUuidAndNameOverARestart) {
  RememberedNode node;
  {
    const auto state = open();
    ASSERT_TRUE(state) << state.error().message;
    node = (*state)->node();
    EXPECT_TRUE(isUuid(node.uuid));
    EXPECT_EQ(node.name, "");
    node.name = "worker7.tf.local.";
    node.id = 7;
    ASSERT_TRUE((*state)->remember(node));
  }
  EXPECT_EQ((*open())->node(), node);
}

TEST_F(StateDirectoryTest, ThePredecessorHasEndedIfItHeldThisLockInThisBoot) {
  const auto options_of = [this](const std::string& directory) {
    StateDirectory::Options made = options();
    made.directory = directory;
    made.boot_id_file = directory_ / "boot";
    return made;
  };
  const auto reopened = [&](const std::string& directory) {
    const auto state = StateDirectory::open(options_of(directory), {});
    return state && (*state)->predecessorEnded();
  };
  const std::string here = directory_ / "state";
  const std::string there = directory_ / "copy";
  overwrite(directory_ / "boot", "6c3e\n");
  {
    const auto state = StateDirectory::open(options_of(here), {});
    EXPECT_FALSE((*state)->predecessorEnded()) << "there was none";
    ASSERT_TRUE(
        (*state)->remember({(*state)->node().uuid, "worker7.tf.local.", 7, 41, 0xfeedfeedfeedfeed, 43, {40, 42}}));
  }
  EXPECT_EQ((*StateDirectory::open(options_of(here), {}))->node().leases, (std::vector<int64_t>{40, 42}));
  EXPECT_EQ((*StateDirectory::open(options_of(here), {}))->node().cluster_id, 0xfeedfeedfeedfeed);
  EXPECT_TRUE(reopened(here));
  std::filesystem::copy(here, there, std::filesystem::copy_options::copy_symlinks);
  EXPECT_FALSE(reopened(there)) << "a copy: its lock file is another one";
  EXPECT_TRUE(reopened(here));
  overwrite(directory_ / "boot", "another\n");
  EXPECT_FALSE(reopened(here));
  std::filesystem::remove(directory_ / "boot");
  EXPECT_FALSE(reopened(here));
  overwrite(directory_ / "boot", "6c3e\n");
  EXPECT_TRUE(reopened(here));
}

TEST_F(StateDirectoryTest, TheKernelTellsTheBoot) {
  {
    const auto state = open();
    ASSERT_TRUE((*state)->remember((*state)->node()));
  }
  EXPECT_TRUE((*open())->predecessorEnded());
}

TEST_F(StateDirectoryTest, TheUuidIsKeptBeforeAnyNameIs) {
  const std::string uuid = taken()->node().uuid;
  EXPECT_EQ((*open())->node().uuid, uuid);
}

// A configuration that is refused has opened it.
TEST_F(StateDirectoryTest, OpeningChangesNoFile) {
  std::map<std::string, std::string> before;
  const auto files = [this] {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / "state"))
      found[entry.path()] = contentsOf(entry.path());
    return found;
  };
  {
    const auto state = taken();
    ASSERT_TRUE(state->writeIdentity("IDETCD_NAME='x'\n"));
    before = files();
    ASSERT_TRUE(StateDirectory::open(options("other{{.ID}}."), {}));
    EXPECT_EQ(files(), before);
  }
  ASSERT_TRUE(open());
  EXPECT_EQ(files(), before);
}

TEST_F(StateDirectoryTest, TheSecondProcessIsRefusedInOneLine) {
  const auto first = open();
  ASSERT_TRUE(first);
  const auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message, "state directory " + (directory_ / "state") +
                                        " is in use by another idetcd (process " + std::to_string(getpid()) + ") for " +
                                        kPattern);
  EXPECT_TRUE(StateDirectory::open(options("other{{.ID}}."), {}));
  (*first)->release();
  EXPECT_TRUE(open());
}

TEST_F(StateDirectoryTest, WhatCannotBeReadMakesANewNode) {
  const std::string uuid = taken()->node().uuid;
  const std::string good = contentsOf(file(".json"));
  const std::string other = R"({"pattern":"other","uuid":")" + uuid + R"("})";
  for (const std::string& bad : {std::string(), std::string("{"), std::string("[]"), std::string("nonsense"), other,
                                 good.substr(0, good.size() / 2), std::string(100'000, '['),
                                 R"({"pattern":")" + std::string(kPattern) + R"(","uuid":"me"})"}) {
    overwrite(file(".json"), bad);
    const auto state = open();
    ASSERT_TRUE(state) << bad.substr(0, 100);
    EXPECT_TRUE(isUuid((*state)->node().uuid));
    EXPECT_NE((*state)->node().uuid, uuid);
    EXPECT_EQ((*state)->node().name, "");
  }
}

TEST_F(StateDirectoryTest, ACopyOnAnotherMachineIsAnotherNodeThatPrefersTheName) {
  overwrite(directory_ / "machine-id", "0123\n");
  RememberedNode node;
  {
    const auto state = open();
    node = {(*state)->node().uuid, "worker7.tf.local.", 7};
    ASSERT_TRUE((*state)->remember(node));
  }
  EXPECT_EQ(contentsOf(file(".json")).find("0123\n"), std::string::npos);
  EXPECT_EQ((*open())->node(), node);
  overwrite(directory_ / "machine-id", "4567\n");
  const RememberedNode copy = (*open())->node();
  EXPECT_NE(copy.uuid, node.uuid);
  EXPECT_EQ(copy.name, node.name);
  const std::string uuid = taken()->node().uuid;
  EXPECT_EQ((*open())->node().uuid, uuid);
}

TEST_F(StateDirectoryTest, ADirectoryThatCannotBeIsAnError) {
  overwrite(directory_ / "state", "a file");
  const auto state = open();
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().message.find("state directory " + (directory_ / "state")), 0u) << state.error().message;
}

TEST_F(StateDirectoryTest, OnlyTheIdentityIsForAll) {
  const auto state = taken();
  ASSERT_TRUE(state->writeIdentity("IDETCD_NAME='x'\n"));
  const auto mode = [&](const char* ending) {
    return static_cast<unsigned>(std::filesystem::status(file(ending)).permissions());
  };
  EXPECT_EQ(mode(".json"), 0600U);
  EXPECT_EQ(mode(".lock"), 0600U);
  EXPECT_EQ(mode(".env") | 022U, 0666U);  // less the umask
}

TEST_F(StateDirectoryTest, ADirectoryInThePlaceOfAFileIsNamed) {
  std::filesystem::create_directories(file(".lock"));
  const auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "state directory " + (directory_ / "state") + ": " + file(".lock") + " is a directory");
  std::filesystem::remove(file(".lock"));
  std::filesystem::create_directories(directory_ / "state/identity");
  const auto state = taken();
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(directory_ / "state/identity.new")));
}

TEST_F(StateDirectoryTest, TheIdentityOfACrashedProcessIsEmptied) {
  {
    const auto state = taken();
    ASSERT_TRUE(state->writeIdentity("IDETCD_NAME='x'\n"));
    EXPECT_EQ(contentsOf(state->identityFile()), "IDETCD_NAME='x'\n");
    EXPECT_EQ(contentsOf(directory_ / "state/identity"), "IDETCD_NAME='x'\n");
  }
  const auto state = taken();
  EXPECT_TRUE(std::filesystem::exists(state->identityFile()));
  EXPECT_EQ(contentsOf(state->identityFile()), "");
}

// This process is both: the server, and the one that takes over.
class HandedOverTest : public StateDirectoryTest {
 protected:
  HandedOverTest() {
    state_ = taken();
    EXPECT_TRUE(state_->writeIdentity("IDETCD_NAME='x'\n"));
  }
  // What a process that waits to take over tries in a child.
  void tryToOpen(bool takes_name = true) {
    StateDirectory::Options trial = options();
    trial.predecessor = getpid();
    trial.takes_name = takes_name;
    const pid_t child = fork();
    if (child == 0) _exit(StateDirectory::open(std::move(trial), {}) ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::string identity() { return contentsOf(file(".env")); }

  std::shared_ptr<StateDirectory> state_;
  const BootClock::time_point soon_ = BootClock::now() + std::chrono::hours(1);
};

TEST_F(HandedOverTest, TheNameStaysForWhoGoesOnWithTheFiles) {
  tryToOpen();
  ASSERT_TRUE(state_->handOver(getpid(), soon_));
  state_->release();
  const auto next = open().value();
  EXPECT_EQ(next->handedOver(), soon_);
  ASSERT_TRUE(next->take(true));
  EXPECT_EQ(identity(), "IDETCD_NAME='x'\n");
  next->release();
  EXPECT_FALSE(open().value()->handedOver()) << "it was for one process";
}

TEST_F(HandedOverTest, NobodyElseGetsTheName) {
  EXPECT_FALSE(state_->handOver(getpid(), soon_)) << "it has not tried the files";
  tryToOpen();
  EXPECT_FALSE(state_->handOver(getpid() + 1, soon_));
  EXPECT_FALSE(state_->handOver(0, soon_));
  tryToOpen(false);
  EXPECT_FALSE(state_->handOver(getpid(), soon_)) << "it does not take the name at once";
}

TEST_F(HandedOverTest, TheNameDoesNotStayBeyondItsTime) {
  tryToOpen();
  ASSERT_TRUE(state_->handOver(getpid(), BootClock::now()));
  state_->release();
  ASSERT_TRUE(open().value()->take(true));
  EXPECT_EQ(identity(), "");
}

TEST_F(HandedOverTest, WhoDoesNotTakeTheNameEmptiesTheFile) {
  tryToOpen();
  ASSERT_TRUE(state_->handOver(getpid(), soon_));
  state_->release();
  open().value()->release();  // a start that fails
  EXPECT_EQ(identity(), "");
}

TEST_F(HandedOverTest, AnotherNodeDoesNotKeepTheName) {
  tryToOpen();
  ASSERT_TRUE(state_->handOver(getpid(), soon_));
  state_->release();
  std::filesystem::remove(file(".json"));
  const auto next = open().value();
  EXPECT_FALSE(next->handedOver());
  ASSERT_TRUE(next->take(true));
  EXPECT_EQ(identity(), "");
}

TEST_F(StateDirectoryTest, TheIdentityOfAnotherPatternGoesWithItsProcess) {
  ASSERT_TRUE(taken()->writeIdentity("IDETCD_NAME=worker1.tf.local.\n"));
  const auto used = StateDirectory::open(options("used{{.ID}}.tf.local."), {}).value();
  ASSERT_TRUE(used->take());
  EXPECT_EQ(std::filesystem::file_size(file(".env")), 0u);
  ASSERT_TRUE(used->writeIdentity("IDETCD_NAME=used1.tf.local.\n"));
  taken();
  EXPECT_GT(std::filesystem::file_size(used->identityFile()), 0u);
}

TEST_F(StateDirectoryTest, TheIdentityIsClearedInHasteOnlyByWhoHoldsTheDirectory) {
  const auto first = StateDirectory::open(options(), {}).value();
  ASSERT_TRUE(first->writeIdentity("x"));
  first->clearIdentity();
  EXPECT_EQ(contentsOf(first->identityFile()), "");
  first->release();
  const auto second = StateDirectory::open(options(), {}).value();
  ASSERT_TRUE(second->writeIdentity("y"));
  first->clearIdentity();
  EXPECT_EQ(contentsOf(second->identityFile()), "y");
}

TEST_F(StateDirectoryTest, WithSeveralPatternsThereIsNoSingleIdentity) {
  const auto state = taken();
  EXPECT_TRUE(std::filesystem::exists(directory_ / "state/identity"));
  state->linkIdentity(false);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "state/identity"));
}

TEST_F(StateDirectoryTest, NothingUnfinishedIsLeft) {
  const auto state = open();
  ASSERT_TRUE((*state)->remember({(*state)->node().uuid, "worker1.tf.local.", 1}));
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "state")) {
    EXPECT_NE(entry.path().extension(), ".new") << entry.path();
  }
}

}  // namespace
}  // namespace idetcd::node
