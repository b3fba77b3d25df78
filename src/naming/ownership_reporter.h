// Reports when this node begins and ceases to own its name, strictly in turn: once for each claim and once for its
// loss, also when the deadline passes without a renewal. A renewal in time is no change. Scheduler's thread only.
#pragma once

#include "base/clock.h"
#include "naming/context.h"
#include "naming/own_name.h"
#include "naming/ownership.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"

namespace idetcd::naming {

class OwnershipReporter {
 public:
  struct Listener {
    std::function<void(const Ownership&)> claimed;
    std::function<void()> lost;
  };

  // Arguments passed by reference outlive this.
  OwnershipReporter(const runtime::Scheduler& scheduler, Lifetime& lifetime, const OwnName& name, Listener listener)
      : scheduler_(scheduler), lifetime_(lifetime), name_(name), listener_(std::move(listener)) {}

  // The name may say something else. An ownership that ended unseen, since this process stood still, is reported to
  // have ended even if it was renewed meanwhile. Once `lifetime` has ended nothing is owned.
  void report();
  // Reports what only time has changed, until `lifetime` ends.
  runtime::Task<void> watchDeadline();

  // As it was reported.
  const std::optional<Ownership>& reported() const { return reported_; }

 private:
  bool isInDoubt();

  const runtime::Scheduler& scheduler_;
  Lifetime& lifetime_;
  const OwnName& name_;
  const Listener listener_;
  std::optional<Ownership> reported_;
  std::optional<BootClock::time_point> in_doubt_since_;  // the name that was reported
};

}  // namespace idetcd::naming
