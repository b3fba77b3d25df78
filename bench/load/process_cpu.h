// How long a process has run, and waited for a processor, as the kernel counts it.
#pragma once

#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace idetcd::bench {

// Nanoseconds. From /proc/PID/task/TID/schedstat, which is exact where /proc/PID/stat counts in ticks of 10 ms, but is
// brought up to date only when a thread begins or ends to run: to read it while the thread sleeps is best. (Of the
// calling thread `waited` is exact, `ran` is not: CLOCK_THREAD_CPUTIME_ID.)
struct ThreadTime {
  pid_t thread = 0;
  uint64_t ran = 0;
  uint64_t waited = 0;  // ready to run, while others ran
};

// Of all threads; empty if there is no such process.
std::vector<ThreadTime> threadTimes(pid_t pid);

struct ProcessTime {
  uint64_t ran = 0;  // all threads
  uint64_t busiest_ran = 0;
  // The busiest, while other processes ran; its siblings, with which it shares one processor, are no other process.
  uint64_t waited = 0;
};

// The time between two calls for one process.
ProcessTime timeBetween(const std::vector<ThreadTime>& before, const std::vector<ThreadTime>& after);

// All threads' time on a processor.
uint64_t cpuTime(pid_t pid);

}  // namespace idetcd::bench
