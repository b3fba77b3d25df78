// A Task's view of its thread: the time, a turn when its wait is over, and an end. A driver derives from it and
// brings thread, clock and a queue of posted work (etcd's CompletionThread; virtual time in tests/simulation). Its
// loop, in any order:
//
//   runReady();                    Tasks whose wait is over
//   …                              what was posted; the driver's own events
//   wait until nextTimer()         not at all if hasReady()
//   runTimers();
//
// To stop, stopping() becomes true, posts are refused, and cancelWaits() follows the last accepted post: every wait
// ends at once, and the loop goes on until isIdle(). Nothing here depends on a thread or on addresses.
#pragma once

#include <coroutine>
#include <list>

#include "base/clock.h"
#include "runtime/task.h"

namespace idetcd::runtime {

class Suspension;

class Scheduler : public MachineClock {
 public:
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // --- any thread ---
  // Runs `work` on the scheduler's thread soon, in the order of the calls. False after the stop began: it is not run.
  virtual bool post(std::function<void()> work) = 0;
  // Runs `task` to its end; the scheduler owns it. False after the stop began: it is destroyed unstarted.
  bool spawn(Task<void> task);
  virtual bool stopping() const = 0;
  virtual bool onThread() const = 0;

  // --- the scheduler's thread ---
  // False if it was cut short by the stop: a Task must then come to its end. Time is that of now(), save that a sleep
  // does not end while the machine is suspended.
  Task<bool> sleepFor(std::chrono::nanoseconds duration);
  // now() + `duration`; none if that is beyond the end of time.
  std::optional<BootClock::time_point> deadlineAfter(std::chrono::nanoseconds duration) const;
  // Resumes `waiter` from the loop, after what runs now has suspended: nothing is ever resumed from within a callee.
  void resumeSoon(std::coroutine_handle<> waiter) { ready_.push_back(waiter); }

 protected:
  Scheduler() = default;
  ~Scheduler() override = default;

  // --- the driver, on the scheduler's thread ---
  // Resumes the Tasks that are ready now, not those that they make ready: Tasks that wake each other leave room for events
  // and timers.
  void runReady();
  bool hasReady() const { return !ready_.empty(); }
  void runTimers();  // those that are due
  std::optional<BootClock::time_point> nextTimer() const;
  void cancelWaits();
  bool isIdle() const { return tasks_running_ == 0; }  // every spawned Task has ended

 private:
  friend class Suspension;
  struct SpawnedTask;
  static SpawnedTask runToItsEnd(Scheduler& scheduler, Task<void> task);

  std::deque<std::coroutine_handle<>> ready_;
  std::list<Suspension*> waiting_;
  std::multimap<BootClock::time_point, Suspension*> timers_;  // of equal ones the first added is the first due
  size_t tasks_running_ = 0;
};

// A coroutine waits for one thing: a wake(), a deadline, or the stop of its scheduler. Lives in the coroutine's frame;
// scheduler's thread only.
//
//   Suspension pause(scheduler, deadline);   …hand out &pause…   auto outcome = co_await pause;
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

// A condition that Tasks wait for. Every waiter is resumed soon after set() (never within it); an Event that is set
// stays so until reset(). Scheduler's thread only.
class Event {
 public:
  explicit Event(Scheduler& scheduler) : scheduler_(scheduler) {}
  ~Event();  // REQUIRES: no waiter
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void set();
  void reset() { set_ = false; }
  bool isSet() const { return set_; }

  // True if the event was (or became) set within `timeout`; false on time-out and when the scheduler stops.
  Task<bool> wait(std::chrono::nanoseconds timeout);

 private:
  Scheduler& scheduler_;
  bool set_ = false;
  std::vector<Suspension*> waiters_;
};

}  // namespace idetcd::runtime
