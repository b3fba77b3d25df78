#include "naming/context.h"

#include <cmath>

namespace idetcd::naming {

using namespace std::chrono_literals;

runtime::Task<void> returnHomeRegularly(runtime::Scheduler& scheduler, Lifetime& lifetime, Jitter& jitter,
                                        store::Store& store) {
  while (true) {
    const auto at = scheduler.now() + jitter.around(20s, 0.5);
    while (scheduler.now() < at) {
      const std::chrono::nanoseconds left = at - scheduler.now();
      const bool go_on = co_await lifetime.pause(std::min<std::chrono::nanoseconds>(1s, left));
      if (!go_on) co_return;
      co_await store.identifyEndpoints();
      if (lifetime.stopping()) co_return;
    }
    co_await store.returnHome();
  }
}

void ErrorLogThrottle::failed(std::string_view doing, const store::StoreError& error) {
  if (error.code == ErrorCode::kCancelled || error.code == ErrorCode::kUnavailable ||
      error.code == ErrorCode::kDeadlineExceeded) {
    return;
  }
  const auto [known, inserted] = refused_.try_emplace(std::string(doing), error.code);
  if (!inserted && known->second == error.code) return;
  known->second = error.code;
  log_.error("etcd fails while {}: {}; trying on", doing, error.message);
}

void ErrorLogThrottle::succeeded(std::string_view doing) {
  const auto known = refused_.find(doing);
  if (known == refused_.end()) return;
  refused_.erase(known);
  log_.info("etcd no longer fails while {}", doing);
}

// A slow answer may have waited for its connection, and so may those of requests that were sent meanwhile.
void RoundTrip::took(BootClock::time_point asked, BootClock::time_point now) {
  const std::chrono::nanoseconds duration = now - asked;
  estimate_ = std::max(duration, (estimate_ + duration) / 2);
  if (kLeastInLease * estimate_ <= lease_) warned_ = false;
  if (kLeastInLease * duration <= lease_) return slow_since_.reset();
  if (!slow_since_) slow_since_ = now;
  if (asked >= *slow_since_ && !std::exchange(warned_, true)) {
    const auto seconds = [](std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); };
    log_.warning(
        "etcd takes {:.1f} s to answer: a lease of {:.0f} s is too short for that, and this node may own no name; "
        "it should be {:.0f} s or more",
        seconds(duration), seconds(lease_), std::ceil(kLeastInLease * seconds(duration)));
  }
}

}  // namespace idetcd::naming
