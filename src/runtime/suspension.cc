#include "runtime/suspension.h"

namespace idetcd::runtime {

bool Suspension::await_ready() {
  if (!outcome_ && scheduler_.stopping()) outcome_ = WakeReason::kStopped;
  return outcome_.has_value();
}

void Suspension::await_suspend(std::coroutine_handle<> waiter) {
  waiter_ = waiter;
  place_ = scheduler_.waiting_.insert(scheduler_.waiting_.end(), this);
  if (deadline_) timer_ = scheduler_.timers_.emplace(*deadline_, this);
}

void Suspension::finish(WakeReason outcome) {
  if (outcome_) return;
  outcome_ = outcome;
  if (!waiter_) return;
  scheduler_.waiting_.erase(place_);
  if (timer_) scheduler_.timers_.erase(*timer_);
  scheduler_.resumeSoon(waiter_);
}

}  // namespace idetcd::runtime
