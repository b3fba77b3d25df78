#include <cstdarg>
#include <ctime>
#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include "base/std.h"
#include "etcd/steady_waits_internal.h"

namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t nanosecondsOf(const timespec& time) { return int64_t{time.tv_sec} * kSecond + time.tv_nsec; }

int64_t nowOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return nanosecondsOf(now);
}

timespec steadyMoment(const timespec& wall_moment) {
  constexpr int64_t kLongest = 365 * 24 * 3600 * kSecond;  // no overflow below
  int64_t left =
      wall_moment.tv_sec > kLongest / kSecond * 200 ? kLongest : nanosecondsOf(wall_moment) - nowOf(CLOCK_REALTIME);
  if (left < 0) left = 0;
  if (left > kLongest) left = kLongest;
  const int64_t moment = nowOf(CLOCK_MONOTONIC) + left;
  return {.tv_sec = moment / kSecond, .tv_nsec = moment % kSecond};
}

using Syscall = long (*)(long, ...);

// No static of the function: its guard may itself call syscall(). Relaxed: every thread finds the same.
std::atomic<Syscall> libc_syscall{nullptr};

Syscall libcSyscall() {
  Syscall found = libc_syscall.load(std::memory_order_relaxed);
  if (found != nullptr) return found;
  found = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  libc_syscall.store(found, std::memory_order_relaxed);
  return found;
}

}  // namespace

// unistd.h declares it with another attribute; callers come through its declaration. As libc's, it reads six arguments also
// where the caller passes fewer, which AddressSanitizer must not check.
extern "C" __attribute__((visibility("default"), no_sanitize_address)) long syscall(long number, ...) noexcept {
  std::array<long, 6> a{};
  va_list list;
  va_start(list, number);
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  timespec moment{};
  if (number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && (a[1] & FUTEX_CLOCK_REALTIME) != 0 &&
      a[3] != 0) {
    moment = steadyMoment(*reinterpret_cast<const timespec*>(a[3]));
    a[1] &= ~long{FUTEX_CLOCK_REALTIME};
    a[3] = reinterpret_cast<long>(&moment);
  }
  return libcSyscall()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

namespace idetcd::etcd {

void useSteadyWaits() {}

}  // namespace idetcd::etcd
