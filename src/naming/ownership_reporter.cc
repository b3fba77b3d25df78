#include "naming/ownership_reporter.h"

namespace idetcd::naming {

using namespace std::chrono_literals;

void OwnershipReporter::report() {
  const std::optional<Ownership> now = lifetime_.stopping() ? std::nullopt : name_.ownership();
  if (!now && isInDoubt()) return;
  in_doubt_since_.reset();
  const bool lasts = now && reported_ && reported_->deadline > scheduler_.now() && reported_->token == now->token &&
                     reported_->name == now->name;
  if (reported_ && !lasts) {
    reported_.reset();
    listener_.lost();
  }
  const bool begins = now && !reported_;
  reported_ = now;
  if (begins) listener_.claimed(*reported_);
}

// After a jump of the wall clock nothing is reported for a moment: as a rule the name is confirmed, and was owned all
// the time. REQUIRES: nothing is owned.
bool OwnershipReporter::isInDoubt() {
  constexpr std::chrono::nanoseconds kConfirmationGrace = 1s;
  const BootClock::time_point now = scheduler_.now();
  if (lifetime_.stopping() || !reported_ || now >= reported_->deadline || !name_.isBeingConfirmed()) return false;
  if (!in_doubt_since_) in_doubt_since_ = now;
  return now < *in_doubt_since_ + kConfirmationGrace;
}

// A timer sleeps while the machine is suspended, the deadline does not: so no sleep is long.
runtime::Task<void> OwnershipReporter::watchDeadline() {
  constexpr std::chrono::nanoseconds kLongest = 1s;
  while (true) {
    report();
    std::chrono::nanoseconds delay = kLongest;
    if (reported_) delay = std::min(delay, reported_->deadline - scheduler_.now());
    const bool go_on = co_await lifetime_.pause(delay);
    if (!go_on) co_return;
  }
}

}  // namespace idetcd::naming
