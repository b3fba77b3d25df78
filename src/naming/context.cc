#include "naming/context.h"

#include <cmath>

namespace idetcd::naming {

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

void RoundTrip::took(std::chrono::nanoseconds duration) {
  estimate_ = std::max(duration, (estimate_ + duration) / 2);
  const bool is_short = kLeastInLease * estimate_ > lease_;
  if (is_short && !warned_) {
    const auto seconds = [](std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); };
    log_.warning(
        "etcd takes {:.1f} s to answer: a lease of {:.0f} s is too short for that, and this node may own no name; "
        "it should be {:.0f} s or more",
        seconds(duration), seconds(lease_), std::ceil(kLeastInLease * seconds(duration)));
  }
  warned_ = is_short;
}

}  // namespace idetcd::naming
