// Parts of the completion thread, for etcd/*.cc only. Unless said otherwise: completion thread only.
#pragma once

#include <thread>
#include <unordered_set>

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include "base/clock.h"
#include "etcd/completion_thread.h"
#include "runtime/scheduler.h"

namespace idetcd::etcd {

using runtime::Suspension;

// `from_now` as an instant of the clock that a step of the wall clock does not touch.
gpr_timespec monotonicDeadline(std::chrono::nanoseconds from_now);

// A tag of the completion queue points to one.
class CompletionTag {
 public:
  virtual void onEvent(bool ok) = 0;

 protected:
  ~CompletionTag() = default;
};

// A call or stream under way, which stop() waits for, and cancels first.
class Operation {
 public:
  // Brings the end about, soon or at once; the operation is not destroyed within. May be called more than once.
  virtual void cancel() = 0;
  virtual bool survivesStop() const { return false; }

 protected:
  ~Operation() = default;
};

struct CompletionThread::Impl {
  explicit Impl(CompletionThread& scheduler);
  Result<void> start();  // once, before all else
  ~Impl();

  // --- any thread ---
  bool post(std::function<void()> work);
  void stop(std::chrono::nanoseconds grace);
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  bool onThread() const { return std::this_thread::get_id() == thread_id_.load(); }

  // --- completion thread ---
  grpc::CompletionQueue& queue() { return queue_; }
  void add(Operation* operation) { operations_.insert(operation); }
  void remove(Operation* operation) { operations_.erase(operation); }
  CompletionThread& scheduler() { return scheduler_; }

  // How long an operation that survives stop() may still take; nothing before stop().
  std::optional<std::chrono::nanoseconds> graceLeft() const;

 private:
  // The end of an Alarm: work was posted.
  struct WakeTag final : CompletionTag {
    explicit WakeTag(Impl& impl) : impl_(impl) {}
    void onEvent(bool) override { impl_.runPosted(); }
    Impl& impl_;
  };

  void postLocked(std::function<void()> work);  // REQUIRES: mutex_
  void run();
  void runPosted();
  void endGrace();
  void beginStop();
  void cancelOperations(bool also_survivors);
  gpr_timespec nextDeadline() const;
  void close();

  CompletionThread& scheduler_;
  grpc::CompletionQueue queue_;
  std::unordered_set<Operation*> operations_;
  std::chrono::nanoseconds grace_{0};  // written before stopping_
  std::optional<BootClock::time_point> stop_deadline_;
  bool grace_is_over_ = false;

  std::mutex mutex_;  // guards the four below
  std::deque<std::function<void()>> posted_;
  grpc::Alarm wake_;
  bool wake_set_ = false;
  bool refusing_ = false;

  WakeTag wake_tag_{*this};
  // release/acquire: a thread that sees the stop also sees what the stopper wrote before.
  std::atomic<bool> stopping_{false};
  std::once_flag stop_once_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_;
};

}  // namespace idetcd::etcd
