#include "naming/context.h"

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

}  // namespace idetcd::naming
