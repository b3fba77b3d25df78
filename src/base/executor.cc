#include "base/executor.h"

#include <condition_variable>
#include <future>
#include <thread>

namespace idetcd {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kIdleTime{10};

}  // namespace

struct Executor::Impl : std::enable_shared_from_this<Impl> {
  explicit Impl(size_t max) : max_threads(max) {}

  // --- with the mutex held ---
  size_t freeThreads() const { return threads - working; }
  // Whether there is a thread for what is ready, and one to see what becomes due; made if need be.
  bool haveThreads();
  void takeDue();
  bool push(Work work);

  void run();
  bool waitForWork(std::unique_lock<std::mutex>& lock);

  const size_t max_threads;
  std::mutex mutex;                 // guards all below, and the strands
  std::condition_variable changed;  // for the threads
  std::condition_variable ended;    // for finish()
  std::deque<Work> ready;
  std::multimap<Clock::time_point, Work> later;
  size_t threads = 0;
  size_t working = 0;  // of them
  bool finishing = false;
};

bool Executor::Impl::haveThreads() {
  const size_t wanted = ready.size() + (ready.empty() && !later.empty() ? 1 : 0);
  if (freeThreads() >= wanted || threads >= max_threads) return true;
  auto thread = startThread([impl = shared_from_this()] { impl->run(); });
  if (!thread) return threads > 0;
  ++threads;
  thread->detach();
  return true;
}

bool Executor::Impl::push(Work work) {
  ready.push_back(std::move(work));
  if (!haveThreads()) {
    ready.pop_back();
    return false;
  }
  changed.notify_one();
  return true;
}

void Executor::Impl::takeDue() {
  const Clock::time_point now = Clock::now();
  while (!later.empty() && later.begin()->first <= now) {
    ready.push_back(std::move(later.begin()->second));
    later.erase(later.begin());
  }
}

// False: this thread is not needed any more.
bool Executor::Impl::waitForWork(std::unique_lock<std::mutex>& lock) {
  const Clock::time_point give_up = Clock::now() + kIdleTime;
  while (true) {
    takeDue();
    if (!ready.empty()) return true;
    if (finishing) return false;
    if (freeThreads() > 1 && Clock::now() >= give_up) return false;
    Clock::time_point until = freeThreads() > 1 ? give_up : Clock::time_point::max();
    if (!later.empty()) until = std::min(until, later.begin()->first);
    if (until == Clock::time_point::max()) {
      changed.wait(lock);
    } else {
      changed.wait_until(lock, until);
    }
  }
}

void Executor::Impl::run() {
  std::unique_lock lock(mutex);
  while (waitForWork(lock)) {
    Work work = std::move(ready.front());
    ready.pop_front();
    ++working;
    haveThreads();
    lock.unlock();
    work();
    work = nullptr;  // what it kept alive goes outside of the lock
    lock.lock();
    --working;
  }
  --threads;
  ended.notify_all();
}

struct Executor::Strand::State : std::enable_shared_from_this<State> {
  explicit State(std::shared_ptr<Executor::Impl> executor) : impl(std::move(executor)) {}

  bool submit(Work work) {
    const std::lock_guard lock(impl->mutex);
    if (impl->finishing) return false;
    queue.push_back(std::move(work));
    if (active) return true;
    active = impl->push([self = shared_from_this()] { self->runOne(); });
    if (!active) queue.pop_back();
    return active;
  }

  void runOne() {
    std::unique_lock lock(impl->mutex);
    Work work = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    active = !queue.empty();
    if (active) impl->push([self = shared_from_this()] { self->runOne(); });  // on this thread at the latest
  }

  const std::shared_ptr<Executor::Impl> impl;
  std::deque<Work> queue;
  bool active = false;  // one of the threads works for it, or is about to
};

bool Executor::Strand::submit(Work work) { return state_->submit(std::move(work)); }

bool Executor::Strand::submitAfter(std::chrono::milliseconds delay, Work work) {
  const std::shared_ptr<Executor::Impl>& impl = state_->impl;
  const std::lock_guard lock(impl->mutex);
  if (impl->finishing) return false;
  const auto entry = impl->later.emplace(
      Clock::now() + delay, [state = state_, work = std::move(work)]() mutable { state->submit(std::move(work)); });
  if (!impl->haveThreads()) {
    impl->later.erase(entry);
    return false;
  }
  impl->changed.notify_one();
  return true;
}

void Executor::Strand::drain() {
  const auto done = std::make_shared<std::promise<void>>();
  if (submit([done] { done->set_value(); })) done->get_future().wait();
}

Executor::Executor(size_t max_threads) : impl_(std::make_shared<Impl>(max_threads)) {}

Executor::~Executor() { finish(std::chrono::milliseconds(0)); }

std::shared_ptr<Executor::Strand> Executor::makeStrand() {
  return std::shared_ptr<Strand>(new Strand(std::make_shared<Strand::State>(impl_)));
}

bool Executor::submit(Work work) {
  const std::lock_guard lock(impl_->mutex);
  return !impl_->finishing && impl_->push(std::move(work));
}

bool Executor::finish(std::chrono::milliseconds budget) {
  std::multimap<Clock::time_point, Work> dropped;  // outside of the lock
  std::unique_lock lock(impl_->mutex);
  impl_->finishing = true;
  dropped.swap(impl_->later);
  impl_->changed.notify_all();
  return impl_->ended.wait_for(lock, budget, [this] { return impl_->threads == 0; });
}

}  // namespace idetcd
