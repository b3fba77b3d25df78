// The one thread that drains the gRPC completion queue and runs every Task of the etcd client and of the cluster.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "etcd/task.h"

namespace idetcd::etcd {

class CompletionThread {
 public:
  CompletionThread();   // starts the thread
  ~CompletionThread();  // stop()
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // Runs `task` to its end on the completion thread; the thread owns it. Any thread. After stop() began: false, the
  // task is destroyed unstarted.
  bool spawn(Task<void> task);

  // Runs `work` on the completion thread soon, in the order of the calls. Any thread. After stop() began: false, it is
  // not run.
  bool post(std::function<void()> work);

  // Suspends the calling Task. Returns false if it was cut short by stop(): a Task must then come to its end.
  // Completion thread only. Time is BootClock's, save that a sleep does not end while the machine is suspended.
  Task<bool> sleepFor(std::chrono::nanoseconds duration);

  bool stopping() const;            // any thread
  bool onCompletionThread() const;  // any thread

  // Cancels every call, stream and sleep under way (each co_await returns a kCancelled error, or false), waits until
  // every spawned Task has run to its end, and joins the thread. Any thread but the completion thread; idempotent. Only
  // lease revocations may still be made and finished, within 2 s: see Client::leaseRevoke().
  void stop();

  struct Impl;
  Impl& impl() { return *impl_; }  // for etcd/*.cc only: gRPC types stay out of headers

 private:
  std::unique_ptr<Impl> impl_;
};

// A condition that Tasks wait for, on the completion thread only. Every waiter is resumed soon after set() (never
// within it); an Event that is set stays so until reset(). REQUIRES: no waiter when it is destroyed.
class Event {
 public:
  explicit Event(CompletionThread& thread);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void set();
  void reset();
  bool isSet() const;

  // True if the event was (or became) set within `timeout`; false on time-out and on stop().
  Task<bool> wait(std::chrono::nanoseconds timeout);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace idetcd::etcd
