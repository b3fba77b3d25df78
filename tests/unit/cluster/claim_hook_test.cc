#include "cluster/claim_hook.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <vector>

#include <gtest/gtest.h>

#include "unit/cluster/eventually.h"
#include "unit/cluster/temporary_directory.h"

namespace idetcd::cluster {
namespace {

using namespace std::chrono_literals;

class ClaimHookTest : public testing::Test {
 protected:
  // Every program has been reaped: this process has no child.
  ~ClaimHookTest() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }

  static ClaimHook::Options shell(const std::string& script, std::chrono::milliseconds limit = 30s) {
    return {.command = {"sh", "-c", script}, .time_limit = limit};
  }
  static ClaimHook::Variables event(const std::string& what) { return {{"IDETCD_EVENT", what}}; }

  TemporaryDirectory directory_;
  const std::string out_ = directory_ / "out";
};

TEST_F(ClaimHookTest, RunsInTheOrderOfTheEvents) {
  ClaimHook hook(shell("sleep 0.0$IDETCD_N; echo $IDETCD_EVENT $IDETCD_N >> " + out_), {});
  for (int n = 5; n > 0; --n) hook.run({{"IDETCD_EVENT", "claim"}, {"IDETCD_N", std::to_string(n)}});
  hook.finish(60s);
  EXPECT_EQ(contentsOf(out_), "claim 5\nclaim 4\nclaim 3\nclaim 2\nclaim 1\n");
}

TEST_F(ClaimHookTest, HasTheServersEnvironmentAndNoInheritedIdentity) {
  setenv("IDETCD_NAME", "somebody", 1);
  setenv("HOOK_TEST", "here", 1);
  ClaimHook hook(shell("echo \"$HOOK_TEST [$IDETCD_NAME] $IDETCD_EVENT\" > " + out_), {});
  hook.run({{"IDETCD_EVENT", "a 'b' \"c\" $d"}});
  hook.finish(60s);
  unsetenv("IDETCD_NAME");
  unsetenv("HOOK_TEST");
  EXPECT_EQ(contentsOf(out_), "here [] a 'b' \"c\" $d\n");
}

TEST_F(ClaimHookTest, HasNoFileOpenButTheStandardOnes) {
  ClaimHook hook(shell("exec > " + out_ + "; for f in /proc/$$/fd/*; do echo ${f##*/}; done"), {});
  hook.run(event("claim"));
  hook.finish(60s);
  const std::string fds = contentsOf(out_);
  EXPECT_EQ(fds.substr(0, 6), "0\n1\n2\n");
  EXPECT_LE(std::count(fds.begin(), fds.end(), '\n'), 4) << fds;  // and the directory that the shell reads
}

TEST_F(ClaimHookTest, FailureStopsNothing) {
  ClaimHook hook(shell("echo x >> " + out_ + "; test $IDETCD_EVENT = good || kill -TERM $$"), {});
  hook.run(event("bad"));
  hook.run(event("good"));
  hook.finish(60s);
  EXPECT_EQ(contentsOf(out_), "x\nx\n");
}

TEST_F(ClaimHookTest, AProgramThatIsNotThereIsNoHarm) {
  ClaimHook hook({.command = {directory_ / "no-such-program"}}, {});
  hook.run(event("claim"));
  hook.run(event("loss"));
  hook.finish(60s);
}

TEST_F(ClaimHookTest, RunReturnsAtOnceAndADawdlerIsKilledWithItsChildren) {
  const auto begin = BootClock::now();
  ClaimHook hook(shell("sleep 600 & echo $! >> " + out_ + "; wait", 200ms), {});
  hook.run(event("claim"));
  EXPECT_LT(BootClock::now() - begin, 100ms);
  hook.run(event("loss"));
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
  hook.run(event("claim"));
  hook.run(event("loss"));
  ASSERT_TRUE(eventually([&] { return contentsOf(out_) == "x\n"; }));
  const auto begin = BootClock::now();
  hook.finish(0s);
  EXPECT_LT(BootClock::now() - begin, 10s);
  EXPECT_EQ(contentsOf(out_), "x\n");
  hook.run(event("claim"));  // nothing any more
}

TEST_F(ClaimHookTest, AbandonKillsWhatRunsWithItsChildrenAndWaitsForNothing) {
  ClaimHook hook(shell("trap '' TERM; sleep 600 & echo $! >> " + out_ + "; wait"), {});
  hook.run(event("claim"));
  hook.run(event("loss"));
  ASSERT_TRUE(eventually([&] { return !contentsOf(out_).empty(); }));
  hook.abandon();
  const std::string pid = contentsOf(out_).substr(0, contentsOf(out_).find('\n'));
  EXPECT_TRUE(eventually([&] {
    const std::string status = contentsOf("/proc/" + pid + "/stat");
    return status.empty() || status.find(") Z") != std::string::npos;
  }));
  hook.run(event("claim"));
  hook.finish(60s);
  EXPECT_EQ(contentsOf(out_), pid + "\n") << "nothing is run any more";
  hook.abandon();  // nothing is left to kill
}

TEST_F(ClaimHookTest, TooManyEventsLeaveOutTheOldestPairs) {
  const std::string go = directory_ / "go";
  ClaimHook hook(shell("while ! test -e " + go + "; do sleep 0.01; done; echo $IDETCD_EVENT >> " + out_), {});
  for (int n = 0; n < 41; ++n) hook.run(event((n % 2 == 0 ? "claim" : "loss") + std::to_string(n)));
  overwrite(go, "");
  hook.finish(60s);
  std::istringstream lines(contentsOf(out_));
  std::vector<std::string> events;
  for (std::string line; lines >> line;) events.push_back(line);
  ASSERT_GT(events.size(), 10u);
  EXPECT_LT(events.size(), 20u);
  EXPECT_EQ(events.back(), "claim40");
  for (size_t i = 1; i < events.size(); ++i) EXPECT_NE(events[i].substr(0, 2), events[i - 1].substr(0, 2));
}

}  // namespace
}  // namespace idetcd::cluster
