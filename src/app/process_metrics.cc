#include "app/process_metrics.h"

#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace idetcd::app {

namespace {

double cpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// proc(5): the first two fields of /proc/self/statm, in pages.
struct Memory {
  double virtual_bytes = 0;
  double resident_bytes = 0;
};

Memory readMemory(const FileDescriptor& file) {
  std::array<char, 128> text{};
  unsigned long long size = 0;
  unsigned long long resident = 0;
  if (pread(file.get(), text.data(), text.size() - 1, 0) <= 0) return {};
  if (std::sscanf(text.data(), "%llu %llu", &size, &resident) != 2) return {};  // NOLINT(cert-err34-c): the kernel's
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  return {.virtual_bytes = static_cast<double>(size) * page, .resident_bytes = static_cast<double>(resident) * page};
}

double descriptorLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

double openDescriptors() {
  const double limit = descriptorLimit();
  const auto free = static_cast<double>(net::freeDescriptors());
  return free < limit ? limit - free : limit;
}

}  // namespace

// The file is opened once: a process that has run out of descriptors still says how much memory it has.
ProcessMetrics::ProcessMetrics(const metrics::Scope& scope, const Logger& log,
                               const std::shared_ptr<net::DescriptorBudget>& budget)
    : log_dropped_(scope, "idetcd_log_lines_dropped_total", "Lines of the log that were lost since they were not read.",
                   [log] { return static_cast<double>(log.droppedLines()); }),
      descriptors_(scope, "idetcd_descriptors",
                   "Descriptors in use for clients over TCP and questions to other servers.",
                   [budget] { return static_cast<double>(budget->used()); }),
      max_descriptors_(scope, "idetcd_max_descriptors",
                       "Descriptors that may be used for clients over TCP and questions to other servers.",
                       [budget] { return static_cast<double>(budget->total()); }),
      memory_file_(std::make_shared<const FileDescriptor>(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC))),
      cpu_seconds_(scope, "process_cpu_seconds_total", "CPU time of all threads, of user and system.", cpuSeconds),
      resident_bytes_(scope, "process_resident_memory_bytes", "Memory that is resident.",
                      [file = memory_file_] { return readMemory(*file).resident_bytes; }),
      virtual_bytes_(scope, "process_virtual_memory_bytes", "Address space that is in use.",
                     [file = memory_file_] { return readMemory(*file).virtual_bytes; }),
      open_descriptors_(scope, "process_open_fds", "Descriptors that are open.", openDescriptors),
      descriptor_limit_(scope, "process_max_fds", "Descriptors that may be open.", descriptorLimit),
      start_time_(scope, "process_start_time_seconds", "When the process began, in seconds since 1970.",
                  [start = now()] { return start; }),
      failed_reloads_(scope, "coredns_reload_failed_total",
                      "Reloads that were refused, so that the configuration before stayed in use.") {}

}  // namespace idetcd::app
