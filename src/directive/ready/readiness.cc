#include "directive/ready/readiness.h"

#include <fmt/ranges.h>

namespace idetcd::directive {

void Readiness::add(std::string name, std::function<std::string()> missing, Monitor monitor) {
  const std::lock_guard lock(mutex_);
  next_.push_back({.name = std::move(name), .missing = std::move(missing), .monitor = monitor});
}

void Readiness::accept() {
  const std::lock_guard lock(mutex_);
  used_ = std::exchange(next_, {});
}

void Readiness::refuse() {
  const std::lock_guard lock(mutex_);
  next_.clear();
}

std::chrono::milliseconds Readiness::prepareEnd() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  return std::chrono::milliseconds(0);
}

http::Response Readiness::respond() {
  const std::lock_guard lock(mutex_);
  if (ending_) return {.status = 503, .body = "Shutting down"};
  std::vector<std::string> all;
  for (Check& check : used_) {
    if (!check.missing) continue;
    const std::string what = check.missing();
    if (!what.empty()) {
      all.push_back(fmt::format("{}: {}", check.name, what));
    } else if (check.monitor == Monitor::kUntilReady) {
      check.missing = nullptr;
    }
  }
  if (!all.empty() && all != last_said_) log_.info("Not ready: {}", fmt::join(all, "; "));
  last_said_ = all;
  if (all.empty()) return {.body = "OK"};
  return {.status = 503, .body = fmt::format("{}\n", fmt::join(all, "\n"))};
}

}  // namespace idetcd::directive
