// How long a process has run, as the kernel counts it.
#pragma once

#include <cstdint>
#include <sys/types.h>

namespace idetcd::bench {

// Nanoseconds on a processor, of all its threads; 0 if there is no such process. (/proc/PID/task/TID/schedstat: exact,
// where /proc/PID/stat counts in ticks of 10 ms.)
uint64_t cpuTime(pid_t pid);

}  // namespace idetcd::bench
