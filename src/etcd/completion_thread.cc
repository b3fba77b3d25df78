#include "etcd/completion_thread.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <utility>
#include <vector>

#include <grpc/support/log.h>

#include "etcd/completion_thread_internal.h"
#include "etcd/steady_waits_internal.h"

namespace idetcd::etcd {
namespace {

using std::chrono::nanoseconds;

// The frame of a spawned Task: started by the loop, destroys itself (and the Task with it) at its end.
struct SpawnedTask {
  struct promise_type {
    SpawnedTask get_return_object() { return SpawnedTask{std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

SpawnedTask runToItsEnd(CompletionThread::Impl& thread, Task<void> task) {
  ++thread.tasks_running;
  co_await task;
  --thread.tasks_running;
}

// What goes wrong comes back as a status, and whoever made the call tells it, once. gRPC would also write each failed
// handshake to stderr.
void silenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr)
    gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
}

}  // namespace

gpr_timespec monotonicDeadline(nanoseconds from_now) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(std::max<int64_t>(from_now.count(), 0), GPR_TIMESPAN));
}

std::optional<BootClock::time_point> deadlineAfter(nanoseconds duration) {
  const auto now = BootClock::now();
  if (duration > BootClock::time_point::max() - now) return std::nullopt;
  return now + duration;
}

// --- Suspension ---

void Suspension::await_suspend(std::coroutine_handle<> waiter) {
  waiter_ = waiter;
  thread_.add(this);
  if (deadline_) timer_ = thread_.addTimer(*deadline_, this);
}

void Suspension::finish(Outcome outcome) {
  if (outcome_) return;
  outcome_ = outcome;
  if (!waiter_) return;
  thread_.remove(this);
  if (timer_) thread_.removeTimer(*timer_);
  thread_.resumeSoon(waiter_);
}

// --- CompletionThread::Impl ---

CompletionThread::Impl::Impl() : thread_([this] { run(); }), thread_id_(thread_.get_id()) {
  silenceGrpc();
  useSteadyWaits();
}

CompletionThread::Impl::~Impl() { stop(); }

bool CompletionThread::Impl::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (refusing_) return false;
  postLocked(std::move(work));
  return true;
}

void CompletionThread::Impl::postLocked(std::function<void()> work) {
  posted_.push_back(std::move(work));
  if (wake_set_) return;
  // A deadline long past: the tag is in the queue when Set() returns. "Now" would be rounded up to the next millisecond
  // and left to gRPC's timer thread. An Alarm can be set again once its tag was taken.
  wake_.Set(&queue_, gpr_time_0(GPR_CLOCK_MONOTONIC), &wake_tag_);
  wake_set_ = true;
}

void CompletionThread::Impl::stop() {
  std::call_once(stop_once_, [this] {
    if (onCompletionThread()) std::abort();  // it would wait for itself
    stopping_.store(true, std::memory_order_release);
    {
      // Behind everything that was accepted, and nothing is accepted behind it: nothing is left when run() ends.
      const std::lock_guard lock(mutex_);
      postLocked([this] { beginStop(); });
      refusing_ = true;
    }
    thread_.join();
  });
}

void CompletionThread::Impl::run() {
  while (true) {
    runReady();
    if (stop_deadline_ && tasks_running == 0 && operations_.empty()) break;
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, nextDeadline()) == grpc::CompletionQueue::GOT_EVENT) {
      static_cast<CompletionTag*>(tag)->onEvent(ok);
    }
    runTimers();
  }
  close();
}

// Those that are ready now, not those that they make ready: Tasks that wake each other leave room for events and
// timers.
void CompletionThread::Impl::runReady() {
  for (size_t left = ready_.size(); left > 0; --left) {
    const auto waiter = ready_.front();
    ready_.pop_front();
    waiter.resume();
  }
}

void CompletionThread::Impl::runPosted() {
  std::deque<std::function<void()>> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(posted_);
    wake_set_ = false;
  }
  for (auto& item : work) {
    item();
    item = nullptr;  // what it holds is released here, not later
  }
}

void CompletionThread::Impl::runTimers() {
  if (timers_.empty() && !stop_deadline_) return;
  const auto now = BootClock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) timers_.begin()->second->onDeadline();  // removes itself
  if (stop_deadline_ && *stop_deadline_ <= now && !std::exchange(grace_is_over_, true)) cancelOperations(true);
}

gpr_timespec CompletionThread::Impl::nextDeadline() const {
  if (!ready_.empty()) return gpr_time_0(GPR_CLOCK_MONOTONIC);
  std::optional<BootClock::time_point> next;
  if (!grace_is_over_) next = stop_deadline_;
  if (!timers_.empty() && (!next || timers_.begin()->first < *next)) next = timers_.begin()->first;
  if (!next) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  // gRPC waits in whole milliseconds: rounded up, so that a wake-up does not come a moment too early and again.
  constexpr nanoseconds kGranularity = std::chrono::milliseconds(1);
  return monotonicDeadline(*next - BootClock::now() + kGranularity);
}

std::optional<nanoseconds> CompletionThread::Impl::graceLeft() const {
  if (!stopping()) return std::nullopt;
  if (!stop_deadline_) return kStopGrace;  // beginStop() is on its way
  return std::max(nanoseconds(0), *stop_deadline_ - BootClock::now());
}

void CompletionThread::Impl::beginStop() {
  stop_deadline_ = BootClock::now() + kStopGrace;
  cancelOperations(false);
}

void CompletionThread::Impl::cancelOperations(bool also_survivors) {
  const std::vector<Operation*> operations(operations_.begin(), operations_.end());
  for (Operation* operation : operations) {
    if (also_survivors || !operation->survivesStop()) operation->cancel();
  }
}

void CompletionThread::Impl::close() {
  // Nothing of ours is under way and nothing is accepted any more: what still comes is at most the tag of the Alarm.
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) assert(tag == &wake_tag_);
}

// --- CompletionThread ---

CompletionThread::CompletionThread() : impl_(std::make_unique<Impl>()) {}
CompletionThread::~CompletionThread() { stop(); }

bool CompletionThread::spawn(Task<void> task) {
  const auto handle = runToItsEnd(*impl_, std::move(task)).handle;
  if (impl_->post([handle] { handle.resume(); })) return true;
  handle.destroy();
  return false;
}

bool CompletionThread::post(std::function<void()> work) { return impl_->post(std::move(work)); }

Task<bool> CompletionThread::sleepFor(nanoseconds duration) {
  Suspension pause(*impl_, deadlineAfter(duration));
  const auto outcome = co_await pause;
  co_return outcome == Suspension::Outcome::kTimedOut;
}

bool CompletionThread::stopping() const { return impl_->stopping(); }
bool CompletionThread::onCompletionThread() const { return impl_->onCompletionThread(); }
void CompletionThread::stop() { impl_->stop(); }

// --- Event ---

struct Event::Impl {
  CompletionThread::Impl& thread;
  bool set = false;
  std::vector<Suspension*> waiters;
};

Event::Event(CompletionThread& thread) : impl_(std::make_unique<Impl>(Impl{thread.impl(), false, {}})) {}
Event::~Event() { assert(impl_->waiters.empty()); }

void Event::set() {
  impl_->set = true;
  for (Suspension* waiter : std::exchange(impl_->waiters, {})) waiter->wake();
}

void Event::reset() { impl_->set = false; }
bool Event::isSet() const { return impl_->set; }

Task<bool> Event::wait(nanoseconds timeout) {
  if (impl_->set) co_return true;
  Suspension pause(impl_->thread, deadlineAfter(timeout));
  impl_->waiters.push_back(&pause);
  const auto outcome = co_await pause;
  std::erase(impl_->waiters, &pause);
  co_return outcome == Suspension::Outcome::kWoken;
}

}  // namespace idetcd::etcd
