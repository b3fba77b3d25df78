// The process-wide definition of syscall(): futex waits by the wall clock wait by the steady clock, all else is libc's.
// That a step of the wall clock holds nothing up is shown end to end (tests/e2e/test_ownership.py).
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <linux/futex.h>
#include <memory>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "etcd/completion_thread.h"

namespace idetcd::etcd {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class SteadyWaitsTest : public testing::Test {
 protected:
  // Until a moment of CLOCK_REALTIME, as Abseil does; errno, 0 if woken.
  int waitUntil(timespec moment) {
    const int op = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME;
    return syscall(SYS_futex, &word_, op, 0, &moment, nullptr, FUTEX_BITSET_MATCH_ANY) == 0 ? 0 : errno;
  }
  static timespec in(std::chrono::milliseconds duration) {
    timespec moment{};
    clock_gettime(CLOCK_REALTIME, &moment);
    const int64_t nanoseconds = moment.tv_nsec + std::chrono::nanoseconds(duration).count();
    return {.tv_sec = moment.tv_sec + nanoseconds / 1'000'000'000, .tv_nsec = nanoseconds % 1'000'000'000};
  }

  const std::unique_ptr<CompletionThread> thread_ =
      CompletionThread::make().value();  // whose program has the definition
  std::atomic<int32_t> word_{0};
};

TEST_F(SteadyWaitsTest, AWaitTakesItsTime) {
  const auto begin = Clock::now();
  EXPECT_EQ(waitUntil(in(100ms)), ETIMEDOUT);
  EXPECT_GE(Clock::now() - begin, 99ms);
}

TEST_F(SteadyWaitsTest, AMomentThatIsOverIsNotWaitedFor) {
  EXPECT_EQ(waitUntil({.tv_sec = 0, .tv_nsec = 1}), ETIMEDOUT);
  EXPECT_EQ(waitUntil(in(0ms)), ETIMEDOUT);
}

TEST_F(SteadyWaitsTest, AWaitIsWoken) {
  for (const timespec& moment : {in(600s), timespec{.tv_sec = LONG_MAX, .tv_nsec = 999'999'999}}) {
    word_ = 0;
    std::atomic<bool> done{false};
    std::thread waker([&] {
      while (!done) {
        syscall(SYS_futex, &word_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
        std::this_thread::sleep_for(1ms);
      }
    });
    EXPECT_EQ(waitUntil(moment), 0);
    done = true;
    waker.join();
  }
}

TEST_F(SteadyWaitsTest, AllElseIsAsEver) {
  EXPECT_EQ(syscall(SYS_getpid), getpid());
  errno = 0;
  EXPECT_EQ(syscall(SYS_close, -1), -1);
  EXPECT_EQ(errno, EBADF);
  word_ = 1;
  EXPECT_EQ(waitUntil(in(600s)), EAGAIN);
  timespec relative{.tv_sec = 0, .tv_nsec = 50'000'000};
  EXPECT_EQ(syscall(SYS_futex, &word_, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 1, &relative, nullptr, 0), -1);
  EXPECT_EQ(errno, ETIMEDOUT);
}

}  // namespace
}  // namespace idetcd::etcd
