#include "etcd/completion_thread.h"

#include <cstdlib>

#include <grpc/support/log.h>

#include "base/executor.h"
#include "etcd/completion_thread_internal.h"
#include "etcd/steady_waits_internal.h"

namespace idetcd::etcd {
namespace {

using std::chrono::nanoseconds;

// An error comes back as a status, and the caller reports it, once. gRPC would also write each failed handshake to
// stderr.
void silenceGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr)
    gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
}

}  // namespace

gpr_timespec monotonicDeadline(nanoseconds from_now) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(std::max<int64_t>(from_now.count(), 0), GPR_TIMESPAN));
}

// --- CompletionThread::Impl ---

CompletionThread::Impl::Impl(CompletionThread& scheduler) : scheduler_(scheduler) {
  silenceGrpc();
  useSteadyWaits();
}

Result<void> CompletionThread::Impl::start() {
  auto thread = startThread([this] {
    thread_id_ = std::this_thread::get_id();
    run();
  });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  return {};
}

CompletionThread::Impl::~Impl() { stop(kStopGrace); }

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

void CompletionThread::Impl::stop(nanoseconds grace) {
  std::call_once(stop_once_, [this, grace] {
    if (onThread()) std::abort();  // it would wait for itself
    grace_ = grace;
    stopping_.store(true, std::memory_order_release);
    {
      // Behind everything that was accepted, and nothing is accepted behind it: nothing is left when run() ends.
      const std::lock_guard lock(mutex_);
      postLocked([this] { beginStop(); });
      refusing_ = true;
    }
    if (thread_.joinable()) {
      thread_.join();
    } else {
      run();  // it was never started; there is nothing but the end to be run
    }
  });
}

void CompletionThread::Impl::run() {
  while (true) {
    scheduler_.runReady();
    if (stop_deadline_ && scheduler_.isIdle() && operations_.empty()) break;
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, nextDeadline()) == grpc::CompletionQueue::GOT_EVENT) {
      static_cast<CompletionTag*>(tag)->onEvent(ok);
    }
    scheduler_.runTimers();
    endGrace();
  }
  close();
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

void CompletionThread::Impl::endGrace() {
  if (!stop_deadline_ || grace_is_over_ || BootClock::now() < *stop_deadline_) return;
  grace_is_over_ = true;
  cancelOperations(true);
}

gpr_timespec CompletionThread::Impl::nextDeadline() const {
  if (scheduler_.hasReady()) return gpr_time_0(GPR_CLOCK_MONOTONIC);
  std::optional<BootClock::time_point> next = scheduler_.nextTimer();
  if (stop_deadline_ && !grace_is_over_ && (!next || *stop_deadline_ < *next)) next = stop_deadline_;
  if (!next) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  // gRPC waits in whole milliseconds: rounded up, so that a wake-up does not come a moment too early and again.
  constexpr nanoseconds kGranularity = std::chrono::milliseconds(1);
  return monotonicDeadline(*next - BootClock::now() + kGranularity);
}

std::optional<nanoseconds> CompletionThread::Impl::graceLeft() const {
  if (!stopping()) return std::nullopt;
  if (!stop_deadline_) return grace_;  // beginStop() is on its way
  return std::max(nanoseconds(0), *stop_deadline_ - BootClock::now());
}

void CompletionThread::Impl::beginStop() {
  stop_deadline_ = BootClock::now() + grace_;
  scheduler_.cancelWaits();
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

CompletionThread::CompletionThread(Unstarted) : impl_(std::make_unique<Impl>(*this)) {}

Result<std::unique_ptr<CompletionThread>> CompletionThread::make() {
  std::unique_ptr<CompletionThread> thread(new CompletionThread(Unstarted{}));
  if (auto started = thread->impl_->start(); !started) return tl::unexpected(started.error());
  return thread;
}

CompletionThread::~CompletionThread() { stop(); }

bool CompletionThread::post(std::function<void()> work) { return impl_->post(std::move(work)); }
bool CompletionThread::stopping() const { return impl_->stopping(); }
bool CompletionThread::onThread() const { return impl_->onThread(); }
void CompletionThread::stop(nanoseconds grace) { impl_->stop(grace); }

}  // namespace idetcd::etcd
