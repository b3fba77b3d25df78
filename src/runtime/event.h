// A condition that Tasks wait for. Every waiter is resumed soon after set() (never within it); an Event that is set
// stays so until reset(). Scheduler's thread only.
#pragma once

#include "runtime/scheduler.h"
#include "runtime/task.h"

namespace idetcd::runtime {

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
