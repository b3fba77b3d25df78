#include "runtime/scheduler.h"

#include <exception>

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

// The frame of a spawned Task: started by the loop, destroys itself (and the Task with it) at its end.
struct Scheduler::SpawnedTask {
  struct promise_type {
    SpawnedTask get_return_object() { return SpawnedTask{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Scheduler::SpawnedTask Scheduler::runToItsEnd(Scheduler& scheduler, Task<void> task) {
  ++scheduler.tasks_running_;
  co_await task;
  --scheduler.tasks_running_;
}

bool Scheduler::spawn(Task<void> task) {
  const auto handle = runToItsEnd(*this, std::move(task)).handle;
  if (post([handle] { handle.resume(); })) return true;
  handle.destroy();
  return false;
}

Task<bool> Scheduler::sleepFor(std::chrono::nanoseconds duration) {
  Suspension pause(*this, deadlineAfter(duration));
  const auto outcome = co_await pause;
  co_return outcome == Suspension::WakeReason::kTimedOut;
}

std::optional<BootClock::time_point> Scheduler::deadlineAfter(std::chrono::nanoseconds duration) const {
  const BootClock::time_point time = now();
  if (duration > BootClock::time_point::max() - time) return std::nullopt;
  return time + duration;
}

void Scheduler::runReady() {
  for (size_t left = ready_.size(); left > 0; --left) {
    const auto waiter = ready_.front();
    ready_.pop_front();
    waiter.resume();
  }
}

void Scheduler::runTimers() {
  if (timers_.empty()) return;
  const BootClock::time_point time = now();
  while (!timers_.empty() && timers_.begin()->first <= time) {
    timers_.begin()->second->finish(Suspension::WakeReason::kTimedOut);  // takes itself out
  }
}

std::optional<BootClock::time_point> Scheduler::nextTimer() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first;
}

void Scheduler::cancelWaits() {
  while (!waiting_.empty()) waiting_.front()->finish(Suspension::WakeReason::kStopped);  // takes itself out
}

}  // namespace idetcd::runtime
