#include "service/given.h"

#include <charconv>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

namespace idetcd::service {
namespace {

constexpr int kFirstDescriptor = 3;  // SD_LISTEN_FDS_START

std::string take(const char* variable) {
  const char* value = std::getenv(variable);
  std::string text = value != nullptr ? value : "";
  unsetenv(variable);
  return text;
}

std::optional<uint64_t> toNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool isThisProcess(std::string_view pid) { return toNumber(pid) == static_cast<uint64_t>(getpid()); }

std::vector<GivenDescriptor> takeDescriptors() {
  const bool for_us = isThisProcess(take("LISTEN_PID"));
  const auto count = toNumber(take("LISTEN_FDS"));
  const std::string names = take("LISTEN_FDNAMES");
  std::vector<GivenDescriptor> descriptors;
  if (!for_us || !count || *count > static_cast<uint64_t>(sysconf(_SC_OPEN_MAX))) return descriptors;
  std::string_view rest = names;
  for (int fd = kFirstDescriptor; fd < kFirstDescriptor + static_cast<int>(*count); ++fd) {
    const std::string_view name = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) continue;  // it is not open
    descriptors.push_back({.fd = FileDescriptor(fd), .name = std::string(name)});
  }
  return descriptors;
}

std::chrono::microseconds takeWatchdog() {
  const std::string pid = take("WATCHDOG_PID");
  const auto limit = toNumber(take("WATCHDOG_USEC"));
  const bool for_us = pid.empty() || isThisProcess(pid);
  if (!for_us || !limit || *limit > static_cast<uint64_t>(std::chrono::microseconds(std::chrono::hours(24)).count())) {
    return std::chrono::microseconds(0);
  }
  return std::chrono::microseconds(*limit);
}

}  // namespace

Given takeGiven() {
  return {.notify_socket = take("NOTIFY_SOCKET"), .watchdog = takeWatchdog(), .descriptors = takeDescriptors()};
}

}  // namespace idetcd::service
