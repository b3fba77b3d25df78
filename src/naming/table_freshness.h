// As of when the table of names is the present: a quorum's revision is read at a time t, and when the watch has
// delivered every event up to it, the table is the present as of t. Scheduler's thread only.
#pragma once

#include "base/clock.h"
#include "naming/beat.h"
#include "naming/context.h"

namespace idetcd::naming {

class TableFreshness {
 public:
  enum class State {
    kEmpty,       // no snapshot yet
    kFollowing,   // the watch shows what the store gets
    kLagging,     // the watch's member has said itself that it is behind
    kOtherStore,  // a read has shown another store than that of the snapshot. Until loaded()
  };
  // What was known when a read was sent.
  struct Asked {
    uint64_t loads = 0;
    int64_t delivered = 0;
    BootClock::time_point at;
  };

  // `grace`: for an event to come.
  TableFreshness(Context& context, Beat& beat, std::chrono::nanoseconds grace)
      : context_(context), beat_(beat), grace_(grace) {}

  void onCurrent(std::function<void(BootClock::time_point)> listener) { on_current_ = std::move(listener); }

  // See Confirmation.
  void loaded(int64_t revision, uint64_t cluster_id);
  void delivered(int64_t revision);
  void progressed(int64_t revision);
  void watchOpened();
  void watchEnded() { progressed_ = delivered_; }

  Asked asking() const { return {loads_, delivered_, context_.now()}; }
  void answered(const Asked& asked, int64_t revision, uint64_t cluster_id);

  State state() const { return state_; }
  bool isBehind() const;
  // The watch has to be heard: as it is behind, or as its answer to a progress request is the only evidence.
  bool needsProgress() const { return isBehind() || (beat_.isRefused() && !pending_.empty()); }
  int64_t deliveredRevision() const { return delivered_; }
  // When the beat is to be rewritten for what waits to be confirmed.
  BootClock::time_point beatDue() const {
    return pending_.empty() ? BootClock::time_point::max() : beat_.dueFor(pending_.front().at, delivered_);
  }

 private:
  static constexpr size_t kMaxPending = 16;
  struct Reading {
    BootClock::time_point at;
    int64_t revision = 0;
  };

  void take(const Reading& reading);
  void settle();
  void catchUp() {
    if (state_ == State::kLagging) state_ = State::kFollowing;
  }

  Context& context_;
  Beat& beat_;
  const std::chrono::nanoseconds grace_;
  std::function<void(BootClock::time_point)> on_current_;
  State state_ = State::kEmpty;
  uint64_t loads_ = 0;
  uint64_t cluster_id_ = 0;
  int64_t delivered_ = 0;
  int64_t progressed_ = 0;
  std::deque<Reading> pending_;  // not delivered yet, oldest first
};

}  // namespace idetcd::naming
