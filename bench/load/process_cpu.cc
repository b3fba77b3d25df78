#include "load/process_cpu.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace idetcd::bench {

uint64_t cpuTime(pid_t pid) {
  uint64_t total = 0;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    uint64_t nanoseconds = 0;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    total += nanoseconds;
  }
  return total;
}

}  // namespace idetcd::bench
