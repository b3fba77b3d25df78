#include "service/manager.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace idetcd::service {
namespace {

using namespace std::chrono_literals;

// Descriptors from 3 on are a process's own, so each test is one. Its exit status: 0 if `test` says so.
template <typename Test>
void inChild(const Test& test) {
  const pid_t child = fork();
  if (child == 0) {
    close_range(3, ~0U, 0);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
    _exit(test() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

bool openThree() { return dup(0) == 3 && dup(0) == 4 && dup(0) == 5; }

TEST(GivenTest, DescriptorsHaveTheirNamesAndEndWithThisProgram) {
  inChild([] {
    setenv("LISTEN_FDS", "3", 1);
    setenv("LISTEN_FDNAMES", "first::third", 1);
    const bool opened = openThree();
    const Given given = takeGiven();
    if (!opened || given.descriptors.size() != 3) return false;
    constexpr std::array kNames{"first", "", "third"};
    for (int i = 0; i < 3; ++i) {
      const GivenDescriptor& one = given.descriptors[static_cast<size_t>(i)];
      if (one.fd.get() != 3 + i || one.name != kNames[static_cast<size_t>(i)]) return false;
      if (fcntl(one.fd.get(), F_GETFD) != FD_CLOEXEC) return false;
    }
    return true;
  });
}

TEST(GivenTest, NamesMayBeMissing) {
  inChild([] {
    setenv("LISTEN_FDS", "3", 1);
    unsetenv("LISTEN_FDNAMES");
    const bool opened = openThree();
    const Given given = takeGiven();
    return opened && given.descriptors.size() == 3 && given.descriptors[2].name.empty();
  });
}

TEST(GivenTest, WhatIsMeantForAnotherProcessIsLeftAlone) {
  inChild([] {
    setenv("LISTEN_PID", std::to_string(getppid()).c_str(), 1);
    setenv("WATCHDOG_PID", std::to_string(getppid()).c_str(), 1);
    setenv("LISTEN_FDS", "3", 1);
    setenv("WATCHDOG_USEC", "1000000", 1);
    const bool opened = openThree();
    const Given given = takeGiven();
    return opened && given.descriptors.empty() && fcntl(3, F_GETFD) == 0 && given.watchdog == 0us;
  });
}

TEST(GivenTest, WhatIsNotOpenIsNotGiven) {
  inChild([] {
    setenv("LISTEN_FDS", "3", 1);
    const bool opened = openThree();
    close(4);
    const Given given = takeGiven();
    return opened && given.descriptors.size() == 2 && given.descriptors[1].fd.get() == 5;
  });
}

TEST(GivenTest, NumbersThatAreNoneAreIgnored) {
  for (const char* text : {"", "-1", "2x", "99999999999999999999", "4000000000"}) {
    inChild([text] {
      setenv("LISTEN_FDS", text, 1);
      setenv("WATCHDOG_USEC", text, 1);
      const bool opened = openThree();
      const Given given = takeGiven();
      const bool is_hours = std::string_view(text) == "4000000000";  // 67 minutes
      return opened && given.descriptors.empty() && (given.watchdog == 0us) != is_hours;
    });
  }
}

TEST(GivenTest, NothingStaysInTheEnvironment) {
  inChild([] {
    constexpr std::array kVariables{"LISTEN_PID",    "LISTEN_FDS",   "LISTEN_FDNAMES",
                                    "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"};
    setenv("LISTEN_FDS", "0", 1);
    setenv("LISTEN_FDNAMES", "a", 1);
    setenv("NOTIFY_SOCKET", "@there", 1);
    setenv("WATCHDOG_USEC", "2000", 1);
    const Given given = takeGiven();
    if (given.notify_socket != "@there" || given.watchdog != 2ms) return false;
    return std::ranges::none_of(kVariables, [](const char* name) { return std::getenv(name) != nullptr; });
  });
}

}  // namespace
}  // namespace idetcd::service
