#include "sandbox/program_runner.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "sandbox/confinement.h"
#include "support/eventually.h"
#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace idetcd::sandbox {
namespace {

using namespace std::chrono_literals;

// It does not run any more; init may not have reaped it yet.
bool hasEnded(const std::string& pid) {
  const std::string status = contentsOf("/proc/" + pid + "/stat");
  return status.empty() || status.find(") Z") != std::string::npos;
}

std::string firstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

class ProgramRunnerTest : public testing::Test {
 protected:
  RunningProgram shell(const std::string& script, const ProgramRunner::Variables& variables = {}) const {
    return runner_->start({"sh", "-c", script}, variables).value();
  }

  TemporaryDirectory directory_;
  const std::string out_ = directory_ / "out";
  std::unique_ptr<ProgramRunner> runner_ = ProgramRunner::make(Mode::kOff).value();
};

TEST_F(ProgramRunnerTest, ReportsHowAProgramHasEnded) {
  const int exited = shell("exit 7").wait().value();
  EXPECT_TRUE(WIFEXITED(exited));
  EXPECT_EQ(WEXITSTATUS(exited), 7);
  const int killed = shell("kill -TERM $$").wait().value();
  EXPECT_TRUE(WIFSIGNALED(killed));
  EXPECT_EQ(WTERMSIG(killed), SIGTERM);
}

TEST_F(ProgramRunnerTest, ReportsWhyAProgramCannotBeRun) {
  EXPECT_EQ(runner_->start({directory_ / "no-such-program"}, {})->wait().error().message, "No such file or directory");
  EXPECT_EQ(runner_->start({directory_.path()}, {})->wait().error().message, "Permission denied");
  const std::vector<std::string> much{"true", std::string(ProgramRunner::kMaxRequestBytes, 'x')};
  EXPECT_EQ(runner_->start(much, {}).error().message, "Argument list too long");
  EXPECT_EQ(shell("exit 0").wait(), 0) << "and goes on";
}

// As one on a file server that stands still: its start waits here for whoever has a lease of the file.
TEST_F(ProgramRunnerTest, AProgramWhoseStartHangsHoldsUpNoOther) {
  const std::string path = directory_ / "slow";
  std::ofstream(path) << "#!/bin/sh\n";
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  const auto before = std::signal(SIGIO, SIG_IGN);  // by which the kernel asks for the lease
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));  // not to write: that would be "text file busy"
  if (fcntl(file.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "this file system has no leases";
  const RunningProgram slow = runner_->start({path}, {}).value();
  const auto done = std::async(std::launch::async, [this] { return shell("exit 7").wait().value(); });
  const bool was_held_up = done.wait_for(20s) != std::future_status::ready;  // the kernel breaks the lease after 45 s
  file = {};
  EXPECT_FALSE(was_held_up);
  EXPECT_EQ(slow.wait(), 0);
  std::signal(SIGIO, before);
}

TEST_F(ProgramRunnerTest, HandsArgumentsAndVariablesOverAsTheyAre) {
  const std::string script = "printf '%s|' \"$#\" \"$@\" \"$IDETCD_A\" \"$IDETCD_EMPTY\" \"$IDETCD_OLD\" \"$HERE\" > " + out_;
  setenv("IDETCD_OLD", "of another", 1);
  setenv("HERE", "here", 1);
  const auto runner = ProgramRunner::make(Mode::kOff).value();
  unsetenv("IDETCD_OLD");
  unsetenv("HERE");
  const auto program = runner->start({"sh", "-c", script, "sh", "", "a 'b' \"c\" $d\n", ""},
                                     {{"IDETCD_A", "x=y 'z'"}, {"IDETCD_EMPTY", ""}});
  ASSERT_EQ(program->wait(), 0);
  EXPECT_EQ(contentsOf(out_), "3||a 'b' \"c\" $d\n||x=y 'z'|||here|");
}

TEST_F(ProgramRunnerTest, WhatASilentProgramPrintsGoesNowhere) {
  const std::string script = "exec 3>" + out_ + "; readlink /proc/$$/fd/1 /proc/$$/fd/2 | cat >&3";
  ASSERT_EQ(runner_->start({"sh", "-c", script}, {}, {}, true)->wait(), 0);
  EXPECT_EQ(contentsOf(out_), "/dev/null\n/dev/null\n");
}

TEST_F(ProgramRunnerTest, AProgramHasNoFileOpenButTheStandardOnes) {
  ASSERT_EQ(shell("exec > " + out_ + "; for f in /proc/$$/fd/*; do echo ${f##*/}; done; cat").wait(), 0);
  const std::string fds = contentsOf(out_);
  EXPECT_EQ(fds.substr(0, 6), "0\n1\n2\n");
  EXPECT_LE(std::count(fds.begin(), fds.end(), '\n'), 4) << fds;  // and the directory that the shell reads
}

// Of the helper of a process with the rights of the start, once it has run a program.
std::string capabilitiesOfHelper(Mode mode) {
  return inChild([&]() -> std::string {
    if (!keepRightsOfStart()) return "failed";
    const auto runner = ProgramRunner::make(mode).value();
    if (runner->start({"true"}, {})->wait() != 0) return "failed";
    const std::string status = contentsOf(fmt::format("/proc/{}/status", runner->helper()));
    return status.substr(status.find("CapInh"), status.find("NoNewPrivs") - status.find("CapInh"));
  });
}

TEST_F(ProgramRunnerTest, TheHelperGivesUpTheRightsOfTheStart) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has rights to give up";
  const auto sets = [](const char* effective) {
    return fmt::format("CapInh:\t{1}\nCapPrm:\t{0}\nCapEff:\t{0}\nCapBnd:\t{2}\nCapAmb:\t{1}\n", effective,
                       "0000000000000000", "0000000000000400");
  };
  EXPECT_EQ(capabilitiesOfHelper(Mode::kOn), sets("0000000000000400"));
  EXPECT_EQ(capabilitiesOfHelper(Mode::kLog), sets("0000000000000400"));
  const std::string kept = capabilitiesOfHelper(Mode::kOff);
  EXPECT_EQ(kept, inChild([] {
              if (!keepRightsOfStart()) return std::string("failed");
              const std::string status = contentsOf("/proc/self/status");
              return status.substr(status.find("CapInh"), status.find("NoNewPrivs") - status.find("CapInh"));
            }));
}

TEST_F(ProgramRunnerTest, AProgramHasNoSignalBlocked) {
  ASSERT_EQ(shell("grep SigBlk /proc/self/status > " + out_).wait(), 0);
  EXPECT_EQ(contentsOf(out_), "SigBlk:\t0000000000000000\n");
}

TEST_F(ProgramRunnerTest, RunsSeveralAtOnceAndKillsOneWithItsChildren) {
  const RunningProgram first = shell("sleep 600 & echo $! > " + out_ + "; wait");
  const RunningProgram second = shell("until test -e " + (directory_ / "go") + "; do sleep 0.01; done; exit 3");
  ASSERT_TRUE(eventually([&] { return contentsOf(out_).ends_with("\n"); }));
  first.kill();
  const int killed = first.wait().value();
  EXPECT_TRUE(WIFSIGNALED(killed));
  EXPECT_EQ(WTERMSIG(killed), SIGKILL);
  EXPECT_TRUE(eventually([&] { return hasEnded(firstLine(contentsOf(out_))); }));
  overwrite(directory_ / "go", "");
  EXPECT_EQ(WEXITSTATUS(second.wait().value()), 3);
}

TEST_F(ProgramRunnerTest, AProgramMayEndInOrderBeforeItIsKilled) {
  const RunningProgram program =
      shell("trap 'echo asked >> " + out_ + "' TERM; echo runs > " + out_ + "; while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([&] { return contentsOf(out_) == "runs\n"; }));
  program.terminate();
  ASSERT_TRUE(eventually([&] { return contentsOf(out_) == "runs\nasked\n"; }));
  program.kill();
  EXPECT_EQ(WTERMSIG(program.wait().value()), SIGKILL);
}

TEST_F(ProgramRunnerTest, AProgramThatNobodyWaitsForIsKilled) {
  { const RunningProgram forgotten = shell("echo $$ > " + out_ + "; exec sleep 600"); }
  // It may have been killed before it could say who it is: either way nothing is left of it.
  ASSERT_EQ(shell("exit 0").wait(), 0);
  EXPECT_TRUE(eventually([&] { return contentsOf(out_).empty() || hasEnded(firstLine(contentsOf(out_))); }));
}

TEST_F(ProgramRunnerTest, NothingOutlivesTheServer) {
  const RunningProgram program = shell("sleep 600 & echo $! > " + out_ + "; echo $$ >> " + out_ + "; wait");
  const auto lines = [&] {
    const std::string text = contentsOf(out_);
    return std::count(text.begin(), text.end(), '\n');
  };
  ASSERT_TRUE(eventually([&] { return lines() == 2; }));
  const pid_t helper = runner_->helper();
  runner_.reset();
  EXPECT_EQ(::kill(helper, 0), -1) << "the helper has been reaped";
  const std::string pids = contentsOf(out_);
  const std::string second = pids.substr(pids.find('\n') + 1);
  EXPECT_TRUE(eventually([&] { return hasEnded(firstLine(pids)) && hasEnded(firstLine(second)); }));
}

TEST_F(ProgramRunnerTest, TheHelperTakesNoSignalThatEndsTheServer) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) ASSERT_EQ(::kill(runner_->helper(), signal), 0);
  EXPECT_EQ(shell("exit 0").wait(), 0);
}

TEST_F(ProgramRunnerTest, WithoutTheHelperNothingRunsAndNothingHangs) {
  const RunningProgram program = shell("echo $$ > " + out_ + "; exec sleep 600");
  ASSERT_TRUE(eventually([&] { return contentsOf(out_).ends_with("\n"); }));
  ASSERT_EQ(::kill(runner_->helper(), SIGKILL), 0);
  EXPECT_FALSE(program.wait());
  EXPECT_TRUE(eventually([&] { return hasEnded(firstLine(contentsOf(out_))); })) << "the kernel kills it";
  const auto next = runner_->start({"true"}, {});
  EXPECT_FALSE(next && next->wait());
}

}  // namespace
}  // namespace idetcd::sandbox
