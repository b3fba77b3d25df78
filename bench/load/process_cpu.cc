#include "load/process_cpu.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

namespace idetcd::bench {

std::vector<ThreadTime> threadTimes(pid_t pid) {
  std::vector<ThreadTime> times;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    ThreadTime time{.thread = static_cast<pid_t>(std::stol(task.path().filename()))};
    std::ifstream(task.path() / "schedstat") >> time.ran >> time.waited;
    times.push_back(time);
  }
  return times;
}

ProcessTime timeBetween(const std::vector<ThreadTime>& before, const std::vector<ThreadTime>& after) {
  ProcessTime total;
  for (const ThreadTime& now : after) {
    const auto same = [&](const ThreadTime& time) { return time.thread == now.thread; };
    const auto found = std::find_if(before.begin(), before.end(), same);
    const ThreadTime then = found != before.end() ? *found : ThreadTime{};
    const uint64_t ran = now.ran - std::min(now.ran, then.ran);
    total.ran += ran;
    if (ran < total.busiest_ran) continue;
    total.busiest_ran = ran;
    total.waited = now.waited - std::min(now.waited, then.waited);
  }
  total.waited -= std::min(total.waited, total.ran - total.busiest_ran);
  return total;
}

uint64_t cpuTime(pid_t pid) { return timeBetween({}, threadTimes(pid)).ran; }

}  // namespace idetcd::bench
