// State shared by the parts of one Protocol. Everything here belongs to the scheduler's thread.
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "naming/backoff.h"
#include "naming/counters.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"
#include "store/store.h"

namespace idetcd::naming {

// Ends the loops of a Protocol: every one asks stopping() after each co_await, and sleeps by pause().
class Lifetime {
 public:
  explicit Lifetime(runtime::Scheduler& scheduler) : scheduler_(scheduler), stopped_(scheduler) {}

  bool stopping() const { return stopped_.isSet() || scheduler_.stopping(); }
  void stop() { stopped_.set(); }

  // False: the protocol is being stopped.
  runtime::Task<bool> pause(std::chrono::nanoseconds duration) {
    co_await stopped_.wait(duration);
    co_return !stopping();
  }

 private:
  runtime::Scheduler& scheduler_;
  runtime::Event stopped_;
};

// Until the lifetime ends. An endpoint that is back says at once whether it is of our store: else two nodes could have one
// name, in two stores. It takes its share of the nodes again within two minutes, and not all at once. REQUIRES: all outlive
// the task.
runtime::Task<void> returnHomeRegularly(runtime::Scheduler& scheduler, Lifetime& lifetime, Jitter& jitter,
                                        store::Store& store);

// Says once for each activity that etcd refuses it (permission, NOSPACE, …), however often it is tried again, and once
// that it is allowed again. The client itself logs endpoints that are away.
class ErrorLogThrottle {
 public:
  explicit ErrorLogThrottle(Logger log) : log_(std::move(log)) {}

  // `doing`: "watching the names".
  void failed(std::string_view doing, const store::StoreError& error);
  void succeeded(std::string_view doing);

 private:
  Logger log_;
  std::map<std::string, ErrorCode, std::less<>> refused_;
};

// A task that keeps what it works on alive. Parameters, not captures: a lambda's captures would die before the coroutine.
inline runtime::Task<void> withOwner([[maybe_unused]] std::shared_ptr<void> owner, runtime::Task<void> task) {
  co_await task;
}

// Why an activity ends early: the protocol is being stopped, or the store's answer is not one to the question.
inline tl::unexpected<store::StoreError> stopped() {
  return tl::unexpected(store::StoreError{ErrorCode::kCancelled, "stopping"});
}
inline tl::unexpected<store::StoreError> unfitting() {
  return tl::unexpected(store::StoreError{ErrorCode::kOther, "etcd's answer does not fit the transaction"});
}

// How long the store takes to answer, so that a slow network is not taken for a dead member.
class RoundTrip {
 public:
  // `log` says it once where `lease` is too short for that.
  RoundTrip(std::chrono::nanoseconds lease, Logger log) : lease_(lease), log_(std::move(log)) {}

  // A request that was sent at `asked` was answered at `now`.
  void took(BootClock::time_point asked, BootClock::time_point now);
  // `least`, or three times as long as an answer takes; no more than `most`, unless `least` is.
  std::chrono::nanoseconds patience(std::chrono::nanoseconds least, std::chrono::nanoseconds most) const {
    return std::max(least, std::min(3 * estimate_, most));
  }

  // A lease of fewer round trips may be over before it is confirmed.
  static constexpr int kLeastInLease = 6;

 private:
  const std::chrono::nanoseconds lease_;
  const Logger log_;
  std::chrono::nanoseconds estimate_{0};  // rises at once, and falls by half
  std::optional<BootClock::time_point> slow_since_;  // the first of some slow answers in a row
  bool warned_ = false;
};

struct Context {
  runtime::Scheduler& scheduler;
  store::Store& store;
  Lifetime& lifetime;
  ErrorLogThrottle& trouble;
  Counters& counters;
  RandomSource& random;
  Jitter& jitter;
  RoundTrip& round_trip;
  Logger log;

  BootClock::time_point now() const { return scheduler.now(); }
};

}  // namespace idetcd::naming
