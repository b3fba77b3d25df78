// What the completion thread is made of, for etcd/*.cc only. Unless said otherwise: completion thread only.
#pragma once

#include <atomic>
#include <coroutine>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include "base/clock.h"
#include "etcd/completion_thread.h"

namespace idetcd::etcd {

// How long lease revocations may go on after stop() began.
inline constexpr std::chrono::seconds kStopGrace{2};

// `from_now` as an instant of the clock that a step of the wall clock does not touch.
gpr_timespec monotonicDeadline(std::chrono::nanoseconds from_now);
// now + `duration`; nothing if that is beyond the end of time.
std::optional<BootClock::time_point> deadlineAfter(std::chrono::nanoseconds duration);

// What a tag of the completion queue points to.
class CompletionTag {
 public:
  virtual void onEvent(bool ok) = 0;

 protected:
  ~CompletionTag() = default;
};

// Something under way that stop() waits for, and cancels first.
class Operation {
 public:
  // Brings the end about, soon or at once; the operation is not destroyed within. May be called more than once.
  virtual void cancel() = 0;
  virtual bool survivesStop() const { return false; }

 protected:
  ~Operation() = default;
};

class Suspension;

struct CompletionThread::Impl {
  Impl();
  ~Impl();

  // --- any thread ---
  bool post(std::function<void()> work);
  void stop();
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  bool onCompletionThread() const { return std::this_thread::get_id() == thread_id_; }

  // --- completion thread ---
  grpc::CompletionQueue& queue() { return queue_; }
  void add(Operation* operation) { operations_.insert(operation); }
  void remove(Operation* operation) { operations_.erase(operation); }
  // Resumes `waiter` from the loop, after what runs now has suspended: nothing is ever resumed from within a callee.
  void resumeSoon(std::coroutine_handle<> waiter) { ready_.push_back(waiter); }

  using Timers = std::multimap<BootClock::time_point, Suspension*>;
  Timers::iterator addTimer(BootClock::time_point deadline, Suspension* suspension) {
    return timers_.emplace(deadline, suspension);
  }
  void removeTimer(Timers::iterator timer) { timers_.erase(timer); }

  // How long an operation that survives stop() may still take; nothing before stop().
  std::optional<std::chrono::nanoseconds> graceLeft() const;

  size_t tasks_running = 0;

 private:
  // The end of an Alarm: somebody posted work.
  struct WakeTag final : CompletionTag {
    explicit WakeTag(Impl& impl) : impl_(impl) {}
    void onEvent(bool) override { impl_.runPosted(); }
    Impl& impl_;
  };

  void postLocked(std::function<void()> work);  // REQUIRES: mutex_
  void run();
  void runReady();
  void runPosted();
  void runTimers();
  void beginStop();
  void cancelOperations(bool also_survivors);
  gpr_timespec nextDeadline() const;
  void close();

  grpc::CompletionQueue queue_;
  std::unordered_set<Operation*> operations_;
  std::deque<std::coroutine_handle<>> ready_;
  Timers timers_;
  std::optional<BootClock::time_point> stop_deadline_;
  bool grace_is_over_ = false;

  std::mutex mutex_;  // guards the four below
  std::deque<std::function<void()>> posted_;
  grpc::Alarm wake_;
  bool wake_set_ = false;
  bool refusing_ = false;

  WakeTag wake_tag_{*this};
  // release/acquire: who sees that we stop also sees what the stopper wrote before.
  std::atomic<bool> stopping_{false};
  std::once_flag stop_once_;
  std::thread thread_;
  std::thread::id thread_id_;
};

// A coroutine waits for one thing: somebody's wake(), a deadline, or stop(). Lives in the coroutine's frame.
//   Suspension pause(thread, deadline);   …hand out &pause…   auto outcome = co_await pause;
class Suspension final : public Operation {
 public:
  enum class Outcome { kWoken, kTimedOut, kStopped };

  Suspension(CompletionThread::Impl& thread, std::optional<BootClock::time_point> deadline)
      : thread_(thread), deadline_(deadline) {}
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

  // The first of wake(), deadline and stop() decides. wake() may come before the co_await.
  void wake() { finish(Outcome::kWoken); }
  void onDeadline() { finish(Outcome::kTimedOut); }
  void cancel() override { finish(Outcome::kStopped); }

  bool await_ready() {
    if (!outcome_ && thread_.stopping()) outcome_ = Outcome::kStopped;
    return outcome_.has_value();
  }
  void await_suspend(std::coroutine_handle<> waiter);
  Outcome await_resume() const { return *outcome_; }

 private:
  void finish(Outcome outcome);

  CompletionThread::Impl& thread_;
  const std::optional<BootClock::time_point> deadline_;
  std::coroutine_handle<> waiter_;
  std::optional<CompletionThread::Impl::Timers::iterator> timer_;
  std::optional<Outcome> outcome_;
};

}  // namespace idetcd::etcd
