// The one thread that drains the gRPC completion queue and runs every Task of the etcd client and of the cluster.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "etcd/task.h"

namespace idetcd::etcd {

class CompletionThread {
 public:
  CompletionThread();  // starts the thread
  ~CompletionThread();  // stop()
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // Runs `task` to its end on the completion thread; the thread owns it. Any thread. After stop() began: refused, the
  // task is destroyed unstarted.
  void spawn(Task<void> task);

  // Runs `work` on the completion thread soon. Any thread.
  void post(std::function<void()> work);

  // Suspends the calling Task. Returns false if it was cut short by stop(). Completion thread only.
  Task<bool> sleepFor(std::chrono::nanoseconds duration);

  bool stopping() const;          // any thread
  bool onCompletionThread() const;  // any thread

  // Cancels every call, stream and sleep under way (each co_await returns a kCancelled error, or false), waits until every
  // spawned Task has run to its end, and joins the thread. Any thread but the completion thread; idempotent.
  void stop();

  struct Impl;
  Impl& impl() { return *impl_; }  // for etcd/*.cc only: gRPC types stay out of headers

 private:
  std::unique_ptr<Impl> impl_;
};

// A condition that Tasks wait for, on the completion thread only. Every waiter is resumed at set(); an Event that is set
// stays so until reset().
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
