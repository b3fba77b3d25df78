// A scheduler whose time moves only when a test says so: what depends on minutes is tested at once. One thread, but for
// post().
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "runtime/scheduler.h"

namespace idetcd::test_support {

class ManualScheduler final : public runtime::Scheduler {
 public:
  ManualScheduler() = default;
  ~ManualScheduler() override { stop(); }

  bool post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    posted_.push_back(std::move(work));
    return true;
  }
  bool stopping() const override {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }
  bool onThread() const override { return true; }
  BootClock::time_point now() const override { return now_; }
  std::chrono::nanoseconds wallTime() const override { return now_.time_since_epoch() + wall_ahead_; }

  // All that is to be done now.
  void run() {
    do {
      for (auto& work : takePosted()) work();
      runReady();
      runTimers();
    } while (hasWork());
  }
  // All that is to be done until then, each at its time.
  void advance(std::chrono::nanoseconds duration) {
    const BootClock::time_point end = now_ + duration;
    run();
    for (auto next = nextTimer(); next && *next <= end; next = nextTimer()) {
      now_ = *next;
      run();
    }
    now_ = end;
  }
  // As if this process stood still: what is due meanwhile is run afterwards.
  void standStill(std::chrono::nanoseconds duration) { now_ += duration; }
  void setWallClock(std::chrono::nanoseconds forwards) { wall_ahead_ += forwards; }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    run();
    cancelWaits();
    run();
  }
  using Scheduler::isIdle;

 private:
  std::deque<std::function<void()>> takePosted() {
    const std::lock_guard lock(mutex_);
    return std::exchange(posted_, {});
  }
  bool hasWork() {
    const std::lock_guard lock(mutex_);
    return !posted_.empty() || hasReady() || (nextTimer() && *nextTimer() <= now_);
  }

  BootClock::time_point now_{std::chrono::hours(1)};
  std::chrono::nanoseconds wall_ahead_{std::chrono::hours(24)};
  mutable std::mutex mutex_;  // guards the two below
  std::deque<std::function<void()>> posted_;
  bool stopping_ = false;
};

}  // namespace idetcd::test_support
