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
#include "base/machine_clock.h"
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
  // Those that are ready now, not those that they make ready: Tasks that wake each other leave room for events and
  // timers.
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

}  // namespace idetcd::runtime
