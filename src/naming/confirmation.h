// Confirms again and again that what this node takes for the present is the present: the names in its table, and that
// it is this process that holds its lease.
//
//   1. At a time t one linearizable Txn reads the revision R of the store, the beat key and our incarnation key.
//   2. When the watch has delivered every event up to R or beyond, the table is the present as of t. In a quiet store
//      it has at once: nothing was written since the last event.
//   3. Where others write outside the watched range, R is ahead of the last event. Then a beat key inside the range is
//      rewritten, on condition that it is unchanged; its event confirms every node. The time to wait before that is
//      drawn so that of 10,000 nodes only a few try.
//   4. A watch that lacks an event which is known to be in the store is behind: its member answers and applies nothing,
//      or has lost the watch. The mirror leaves it.
//
// The answer to a progress request is no evidence: etcd before 3.4.25 and 3.5.8 gives it ahead of events that it still
// has to send. It is taken only while etcd refuses the beat (no permission, no space).
//
// An incarnation is a random value below /idetcd/, under the lease, written by compare-and-swap after each claim, each
// new watch and each standstill of the machine. Two processes that were resumed from one snapshot of memory hold the
// same lease; the first to write goes on, the other finds a foreign value.
//
// Until the first snapshot is there, which takes seconds where there are many names, no watch can show that the key of
// this node's name is still there: until then it is read with the rest. So it is once behind each new watch: the store
// may have been set back meanwhile to a time before the claim, and have come as far again.
//
// Scheduler's thread only, but for standstill().
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "naming/context.h"
#include "node/standstill.h"
#include "runtime/event.h"
#include "runtime/task.h"
#include "store/store.h"

namespace idetcd::naming {

class Confirmation {
 public:
  struct Options {
    std::chrono::nanoseconds lease{std::chrono::seconds(20)};
    std::vector<std::string> beat_keys;  // of the watched ranges, one each (keyspace.h)
  };

  Confirmation(Context& context, Options options);

  runtime::Task<void> run();  // until the protocol stops
  void stop() { wake_.set(); }

  // --- mirror ---
  // The table is the present as of that time, at least.
  void onCurrent(std::function<void(BootClock::time_point)> listener) { on_current_ = std::move(listener); }
  // A snapshot: the table is that of this cluster at this revision, whatever was before.
  void loaded(int64_t revision, uint64_t cluster_id);
  // Every event up to this revision is in the table.
  void delivered(int64_t revision);
  // The watch has answered a progress request with this revision.
  void progressed(int64_t revision);
  // The watch has shown a beat.
  void sawBeat(std::string_view key, int64_t revision);
  // A new watch, perhaps over a new connection. `is_current`: the names have been the present within the lease.
  void watchOpened(bool is_current);
  // What it has said of progress counts no more: the next watch begins behind the last event.
  void watchEnded() { progressed_ = delivered_; }
  // The watch lacks what is known to be in the store, or the store is not that of the snapshot.
  bool behind() const;
  // The latter. Until loaded().
  bool isOtherStore() const { return other_store_; }

  // --- keeper ---
  enum class Holder {
    kUnconfirmed,
    kOurs,             // as of heldAsOf()
    kForeign,          // another process has our lease
    kDuplicateNodeId,  // another process has our UUID, and a lease of its own
  };
  // The holder was confirmed, or is another one.
  void onHolder(std::function<void()> listener) { on_holder_ = std::move(listener); }
  // The machine may have stood still: the lease, too, has to be confirmed.
  void onStandstill(std::function<void()> listener) { on_standstill_ = std::move(listener); }
  struct HeldKey {
    std::string key;  // empty: it is not looked at
    int64_t create_revision = 0;
  };
  void hold(std::string uuid, int64_t lease, HeldKey slot);
  void letGo();
  Holder holder() const { return holder_; }
  BootClock::time_point heldAsOf() const { return held_as_of_; }
  const node::Standstill::Mark& heldMark() const { return held_mark_; }
  // The machine has stood still since an incarnation was last written or found: a copy of this process may have the lease.
  bool isInDoubt() const { return in_doubt_ || standstill_.since(looked_mark_, tolerance()); }
  // The slot was there then, under the lease; none: it has not been seen, or was not there when it was last looked for.
  std::optional<BootClock::time_point> slotAsOf() const { return slot_as_of_; }
  // It was not there, or not under the lease, when it was last looked for: whatever the watch has shown. Or it has not been
  // looked for behind a new watch, and the names were old before.
  bool slotIsMissing() const { return slot_is_missing_; }
  // How long a pause may be that no lease is lost by.
  std::chrono::nanoseconds tolerance() const { return options_.lease / 20; }
  node::Standstill& standstill() { return standstill_; }  // any thread
  // A new generation of the machine was reported.
  void suspect();

 private:
  struct Reading {
    BootClock::time_point at;
    int64_t revision = 0;
  };
  enum class Write { kNothing, kIncarnation, kBeat };

  runtime::Task<void> ask();
  store::TxnRequest request(Write write) const;
  Write whatToWrite(BootClock::time_point now) const;
  void failed(const store::StoreError& error, Write write);
  void take(const Reading& reading);
  bool readsSlot() const {
    return !uuid_.empty() && !slot_.key.empty() && (!loaded_ || slot_unread_ || slot_is_missing_);
  }
  void judgeSlot(const std::vector<store::KeyValue>& found, const Reading& reading);
  void judge(const std::vector<store::KeyValue>& found, const Reading& reading, const node::Standstill::Mark& mark);
  void settle();
  void learnBeats(const std::vector<int64_t>& revisions);
  int64_t beatRevision() const;
  void noteStandstill();
  std::string newIncarnation();
  void wantNewIncarnation();
  void askSoon();
  void readBy(BootClock::time_point at) { next_read_ = std::min(next_read_, at); }
  bool beatsRefused(BootClock::time_point now) const { return now < beats_refused_until_; }
  BootClock::time_point beatDue() const;
  BootClock::time_point nextDue() const;
  std::chrono::nanoseconds drawBeatWait();

  Context& context_;
  const Options options_;
  const std::chrono::nanoseconds grace_;  // for an answer, and for an event to come
  node::Standstill standstill_;
  std::function<void(BootClock::time_point)> on_current_;
  std::function<void()> on_holder_;
  std::function<void()> on_standstill_;
  runtime::Event wake_;
  Backoff retry_;
  BootClock::time_point next_read_;
  BootClock::time_point not_before_;  // after a failure

  // The table.
  bool loaded_ = false;
  uint64_t loads_ = 0;
  uint64_t watches_ = 0;      // that were opened
  bool other_store_ = false;  // a read has shown another store than that of the snapshot
  bool lags_ = false;         // the watch's member has said itself that it is behind
  uint64_t cluster_id_ = 0;
  int64_t delivered_ = 0;
  int64_t progressed_ = 0;
  std::deque<Reading> pending_;  // not delivered yet, oldest first

  // The beat.
  std::vector<int64_t> beat_revisions_;  // of each key, as far as it is known; 0: there is none
  BootClock::time_point beat_seen_at_;   // when this one was first seen
  BootClock::time_point lacking_since_;  // the beat was not delivered then
  std::chrono::nanoseconds beat_wait_{0};
  BootClock::time_point beats_refused_until_;

  // The incarnation.
  std::string uuid_;  // empty: nothing is held
  int64_t lease_ = 0;
  HeldKey slot_;
  std::optional<BootClock::time_point> slot_as_of_;
  bool slot_unread_ = false;  // since the last watch was opened
  bool slot_is_missing_ = false;
  uint64_t holds_ = 0;                // counts hold() and letGo()
  std::string current_;               // in etcd, as far as it is known; empty: none of this lease
  int64_t incarnation_revision_ = 0;  // of the key; 0: there is none
  std::string wanted_;                // to be written; empty: nothing
  std::vector<std::string> ours_;     // whatever was written or tried under this lease
  bool in_doubt_ = false;             // since a standstill that no incarnation was written after
  BootClock::time_point writes_refused_until_;
  Holder holder_ = Holder::kUnconfirmed;
  BootClock::time_point held_as_of_;
  node::Standstill::Mark held_mark_;
  node::Standstill::Mark looked_mark_;  // when the clocks were last found in step
};

}  // namespace idetcd::naming
