#include "node/claim_hook.h"

#include <algorithm>
#include <csignal>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/eventually.h"
#include "support/temporary_directory.h"

namespace idetcd::node {
namespace {

using namespace std::chrono_literals;

class ClaimHookTest : public testing::Test {
 protected:
  ClaimHook::Options shell(const std::string& script, std::chrono::milliseconds limit = 30s) const {
    return {.command = {"sh", "-c", script}, .runner = runner_, .time_limit = limit};
  }
  static ClaimHook::Variables number(int n) { return {{"IDETCD_N", std::to_string(n)}}; }
  // Claim and loss in turn, each pair with a number.
  static void runPairs(ClaimHook& hook, int first, int last) {
    for (int n = first; n <= last; ++n) {
      hook.claimed(number(n));
      hook.lost(number(n));
    }
  }

  TemporaryDirectory directory_;
  const std::string out_ = directory_ / "out";
  const std::shared_ptr<sandbox::ProgramRunner> runner_ = sandbox::ProgramRunner::make(sandbox::Mode::kOff).value();
};

TEST_F(ClaimHookTest, RunsInTheOrderOfTheEvents) {
  ClaimHook hook(shell("echo $IDETCD_EVENT $IDETCD_N $IDETCD_SEQUENCE >> " + out_), {});
  std::string expected;
  for (int n = 1; n <= 3; ++n) {
    hook.claimed(number(n));
    expected += "claim " + std::to_string(n) + " " + std::to_string(2 * n - 1) + "\n";
    EXPECT_TRUE(eventually([&] { return contentsOf(out_) == expected; }));
    hook.lost(number(n));
    expected += "loss " + std::to_string(n) + " " + std::to_string(2 * n) + "\n";
    EXPECT_TRUE(eventually([&] { return contentsOf(out_) == expected; }));
  }
  hook.finish(60s);
  EXPECT_EQ(contentsOf(out_), expected);
}

TEST_F(ClaimHookTest, FailureStopsNothing) {
  ClaimHook hook(shell("echo x >> " + out_ + "; test $IDETCD_EVENT = loss || kill -TERM $$"), {});
  hook.claimed(number(1));
  ASSERT_TRUE(eventually([&] { return contentsOf(out_) == "x\n"; }));
  hook.lost(number(1));
  hook.finish(60s);
  EXPECT_EQ(contentsOf(out_), "x\nx\n");
}

TEST_F(ClaimHookTest, AProgramThatIsNotThereIsNoHarm) {
  ClaimHook hook({.command = {directory_ / "no-such-program"}, .runner = runner_}, {});
  hook.claimed(number(1));
  hook.lost(number(1));
  hook.finish(60s);
}

TEST_F(ClaimHookTest, RunReturnsAtOnceAndADawdlerIsKilledWithItsChildren) {
  constexpr auto kLimit = 8s;  // each of the two starts within that time, on a busy machine too
  const auto begin = BootClock::now();
  ClaimHook hook(shell("sleep 600 & echo $! >> " + out_ + "; wait", kLimit), {});
  hook.claimed(number(1));
  EXPECT_LT(BootClock::now() - begin, kLimit);
  ASSERT_TRUE(eventually([&] { return !contentsOf(out_).empty(); }));
  hook.lost(number(1));
  hook.finish(60s);
  EXPECT_LT(BootClock::now() - begin, 50s);
  std::istringstream pids(contentsOf(out_));
  int count = 0;
  for (pid_t pid = 0; pids >> pid; ++count) {
    // The orphan is init's to reap, or stays a zombie where there is no init: it does not run any more.
    EXPECT_TRUE(eventually([&] {
      const std::string status = contentsOf("/proc/" + std::to_string(pid) + "/stat");
      return status.empty() || status.find(") Z") != std::string::npos;
    }));
  }
  EXPECT_EQ(count, 2);
}

TEST_F(ClaimHookTest, FinishWithoutABudgetKillsWhatRunsAndForgetsWhatWaits) {
  ClaimHook hook(shell("echo x >> " + out_ + "; exec sleep 600"), {});
  hook.claimed(number(1));
  ASSERT_TRUE(eventually([&] { return contentsOf(out_) == "x\n"; }));
  hook.lost(number(1));
  const auto begin = BootClock::now();
  hook.finish(0s);
  EXPECT_LT(BootClock::now() - begin, 25s) << "its own limit is 30 s";
  EXPECT_EQ(contentsOf(out_), "x\n");
  hook.claimed(number(1));  // nothing any more
}

TEST_F(ClaimHookTest, AHelperThatIsStoppedEndsNothingAndIsNotWaitedFor) {
  ASSERT_EQ(::kill(runner_->helper(), SIGSTOP), 0);
  {
    ClaimHook hook(shell("echo x >> " + out_, 1ms), {});
    hook.claimed(number(1));
    hook.finish(600s);
  }
  ClaimHook hook(shell("echo $IDETCD_EVENT >> " + out_), {});
  hook.claimed(number(2));
  ASSERT_EQ(::kill(runner_->helper(), SIGCONT), 0);
  EXPECT_TRUE(eventually([&] { return !contentsOf(out_).empty(); }));
  hook.lost(number(2));
  hook.finish(60s);
  EXPECT_EQ(contentsOf(out_), "claim\nloss\n") << "what was given up is not run when the helper goes on";
}

TEST_F(ClaimHookTest, AbandonKillsWhatRunsWithItsChildrenAndWaitsForNothing) {
  ClaimHook hook(shell("trap '' TERM; sleep 600 & echo $! >> " + out_ + "; wait"), {});
  hook.claimed(number(1));
  ASSERT_TRUE(eventually([&] { return !contentsOf(out_).empty(); }));
  hook.lost(number(1));
  hook.abandon();
  const std::string pid = contentsOf(out_).substr(0, contentsOf(out_).find('\n'));
  EXPECT_TRUE(eventually([&] {
    const std::string status = contentsOf("/proc/" + pid + "/stat");
    return status.empty() || status.find(") Z") != std::string::npos;
  }));
  hook.claimed(number(1));
  hook.finish(60s);
  EXPECT_EQ(contentsOf(out_), pid + "\n") << "nothing is run any more";
  hook.abandon();  // nothing is left to kill
}

// Until the file `go` is there every program waits for it.
class SlowHookTest : public ClaimHookTest {
 protected:
  void SetUp() override {
    hook_.claimed(number(1));
    EXPECT_TRUE(eventually([&] { return contentsOf(out_) == "claim 1 1\n"; }));
  }
  std::string whenDone() {
    overwrite(go_, "");
    hook_.finish(60s);
    return contentsOf(out_);
  }

  const std::string go_ = directory_ / "go";
  ClaimHook hook_{shell("echo $IDETCD_EVENT $IDETCD_N $IDETCD_SEQUENCE >> " + out_ + "; while ! test -e " + go_ +
                        "; do sleep 0.01; done"),
                  {}};
};

TEST_F(SlowHookTest, WhatCannotBeToldInTimeIsLeftOutInPairs) {
  hook_.lost(number(1));
  runPairs(hook_, 2, 20);
  hook_.claimed(number(21));
  EXPECT_EQ(whenDone(), "claim 1 1\nloss 1 2\nclaim 21 41\n");
}

TEST_F(SlowHookTest, AfterTheLossThatCountsNothingOldIsTold) {
  hook_.lost(number(1));
  runPairs(hook_, 2, 20);
  EXPECT_EQ(whenDone(), "claim 1 1\nloss 1 2\n");
}

TEST_F(SlowHookTest, AProgramThatRunsForALossIsNoReasonToMixPairs) {
  hook_.lost(number(1));
  hook_.claimed(number(2));
  overwrite(go_, "");
  ASSERT_TRUE(eventually([&] { return contentsOf(out_) == "claim 1 1\nloss 1 2\nclaim 2 3\n"; }));
  hook_.lost(number(2));
  EXPECT_EQ(whenDone(), "claim 1 1\nloss 1 2\nclaim 2 3\nloss 2 4\n");
}

TEST_F(ClaimHookTest, StartsWhenItMayOrAfterSomeTime) {
  ClaimHook::Options options = shell("echo $IDETCD_EVENT >> " + out_);
  options.ready_timeout = 60s;
  ClaimHook hook(options, {});
  std::promise<void> ready;
  hook.claimed(number(1), ready.get_future().share());
  EXPECT_EQ(contentsOf(out_), "");
  ready.set_value();
  EXPECT_TRUE(eventually([&] { return contentsOf(out_) == "claim\n"; }));
  hook.finish(60s);

  options.ready_timeout = 10ms;
  ClaimHook impatient(options, {});
  std::promise<void> never;
  impatient.claimed(number(1), never.get_future().share());
  EXPECT_TRUE(eventually([&] { return contentsOf(out_) == "claim\nclaim\n"; }));
  impatient.finish(60s);
}

}  // namespace
}  // namespace idetcd::node
