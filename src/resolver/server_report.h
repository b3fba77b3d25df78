// What a loop thinks of the servers that it forwards to, for other threads to read: they live on their loop.
#pragma once

#include "base/std.h"

namespace idetcd::resolver {

// One server. Written on its loop, read on any thread.
class ServerReport {
 public:
  explicit ServerReport(std::string name) : server(std::move(name)) {}

  const std::string server;  // as UpstreamAddress says it

  void setUp(bool up) { is_up_.store(up, std::memory_order_relaxed); }
  void setRoundTrip(std::chrono::nanoseconds time) { round_trip_.store(time.count(), std::memory_order_relaxed); }

  // Whether it answers, for all that is known: it has not been asked yet, perhaps.
  bool isUp() const { return is_up_.load(std::memory_order_relaxed); }
  // How long it takes to answer, smoothed.
  std::optional<std::chrono::nanoseconds> roundTrip() const {
    const std::chrono::nanoseconds time(round_trip_.load(std::memory_order_relaxed));
    return time.count() > 0 ? std::optional(time) : std::nullopt;
  }

 private:
  std::atomic<bool> is_up_{true};
  std::atomic<int64_t> round_trip_{0};  // ns; 0: not known
};

// The servers of one `forward`, which change with the files that list them. Any thread.
class ServerReports {
 public:
  using All = std::vector<std::shared_ptr<const ServerReport>>;

  void set(All all) {
    const std::lock_guard lock(mutex_);
    all_ = std::move(all);
  }
  All all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  All all_;
};

}  // namespace idetcd::resolver
