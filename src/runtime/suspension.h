// A coroutine waits for one thing: a wake(), a deadline, or the stop of its scheduler. Lives in the coroutine's frame;
// scheduler's thread only.
//
//   Suspension pause(scheduler, deadline);   …hand out &pause…   auto outcome = co_await pause;
#pragma once

#include <coroutine>
#include <list>

#include "base/clock.h"
#include "runtime/scheduler.h"

namespace idetcd::runtime {

class Suspension {
 public:
  enum class WakeReason { kWoken, kTimedOut, kStopped };

  Suspension(Scheduler& scheduler, std::optional<BootClock::time_point> deadline)
      : scheduler_(scheduler), deadline_(deadline) {}
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

  // The first of wake(), deadline and stop decides. wake() may come before the co_await.
  void wake() { finish(WakeReason::kWoken); }

  bool await_ready();
  void await_suspend(std::coroutine_handle<> waiter);
  WakeReason await_resume() const { return *outcome_; }

 private:
  friend class Scheduler;
  void finish(WakeReason outcome);

  Scheduler& scheduler_;
  const std::optional<BootClock::time_point> deadline_;
  std::coroutine_handle<> waiter_;
  std::list<Suspension*>::iterator place_;
  std::optional<std::multimap<BootClock::time_point, Suspension*>::iterator> timer_;
  std::optional<WakeReason> outcome_;
};

}  // namespace idetcd::runtime
