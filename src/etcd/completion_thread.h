// The scheduler that drains gRPC's completion queue, on one thread of its own: of the etcd client, and of all that is
// written over it.
#pragma once

#include "base/result.h"
#include "runtime/scheduler.h"

namespace idetcd::etcd {

class CompletionThread final : public runtime::Scheduler {
 public:
  static constexpr std::chrono::seconds kStopGrace{2};

  // Starts the thread. kNoResources: the system has none left.
  static Result<std::unique_ptr<CompletionThread>> make();
  ~CompletionThread() override;  // stop()

  bool post(std::function<void()> work) override;
  bool stopping() const override;
  bool onThread() const override;
  BootClock::time_point now() const override { return BootClock::now(); }
  std::chrono::nanoseconds wallTime() const override { return SystemClock().wallTime(); }

  // Cancels every call, stream and sleep under way (each co_await returns a kCancelled error, or false), waits until
  // every spawned Task has run to its end, and joins the thread. Any thread but the completion thread; idempotent. Only
  // lease revocations may still be made and finished, within `grace` of the first call: see Store::leaseRevoke().
  void stop(std::chrono::nanoseconds grace = kStopGrace);

  struct Impl;
  Impl& impl() { return *impl_; }  // for etcd/*.cc only: gRPC types stay out of headers

 private:
  struct Unstarted {};
  explicit CompletionThread(Unstarted unstarted);
  std::unique_ptr<Impl> impl_;
};

}  // namespace idetcd::etcd
