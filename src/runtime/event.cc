#include "runtime/event.h"

#include "runtime/suspension.h"

namespace idetcd::runtime {

Event::~Event() { assert(waiters_.empty()); }

void Event::set() {
  set_ = true;
  for (Suspension* waiter : std::exchange(waiters_, {})) waiter->wake();
}

Task<bool> Event::wait(std::chrono::nanoseconds timeout) {
  if (set_) co_return true;
  Suspension pause(scheduler_, scheduler_.deadlineAfter(timeout));
  waiters_.push_back(&pause);
  const auto outcome = co_await pause;
  std::erase(waiters_, &pause);
  co_return outcome == Suspension::WakeReason::kWoken;
}

}  // namespace idetcd::runtime
