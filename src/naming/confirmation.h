// Checks with a quorum that the mirror is current and the lease is ours. Every 0.6 of a lease one linearizable Txn
// reads, of a quorum, whatever the parts ask for:
//
//   table_freshness   the revision: when the watch has delivered every event up to it, the table is the present as of
//                     the time when the read was sent. In a quiet store it has at once
//   beat              the beat keys: where others write outside the watched ranges, the revision is ahead of the last
//                     event, until the event of a beat comes
//   incarnation       which process holds the lease
//   slot_reading      the key of this node's name, while no watch can show it
//
// A watch that lacks an event which is known to be in the store is behind: its member answers and applies nothing, or has
// lost the watch. The mirror leaves it. Scheduler's thread only, but for standstill().
#pragma once

#include "base/clock.h"
#include "naming/beat.h"
#include "naming/context.h"
#include "naming/incarnation.h"
#include "naming/slot_reading.h"
#include "naming/table_freshness.h"
#include "node/standstill.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"
#include "store/transaction.h"

namespace idetcd::naming {

class Confirmation {
 public:
  struct Options {
    std::chrono::nanoseconds lease{std::chrono::seconds(20)};
    std::vector<std::string> beat_keys;  // of the watched ranges, one each (keyspace.h)
    // The mirror's watch is not the store's: a break of it says nothing of the connection to the store. May be empty.
    std::function<bool()> watches_elsewhere = {};
  };

  Confirmation(Context& context, Options options);

  runtime::Task<void> run();  // until the protocol stops
  void stop() { wake_.set(); }

  // --- mirror ---
  // The table is the present as of that time, at least.
  void onCurrent(std::function<void(BootClock::time_point)> listener) { table_.onCurrent(std::move(listener)); }
  // Whether the watch is alive is in doubt.
  void onDoubt(std::function<void()> listener) { on_doubt_ = std::move(listener); }
  // A snapshot: the table is that of this cluster at this revision, whatever was before.
  void loaded(int64_t revision, uint64_t cluster_id);
  // Every event up to this revision is in the table.
  void delivered(int64_t revision) { table_.delivered(revision); }
  // The watch has answered a progress request with this revision.
  void progressed(int64_t revision) { table_.progressed(revision); }
  int64_t beatKeys() const { return beat_.keys(); }
  // The watch has shown a beat.
  void sawBeat(std::string_view key, int64_t revision) { beat_.saw(key, revision, table_.deliveredRevision()); }
  // A new watch. `is_current`: the names have been the present within the lease.
  void watchOpened(bool is_current);
  // What it has said of progress counts no more: the next watch begins behind the last event. `was_reset`: its connection
  // has broken, as those of a copy of this process do.
  void watchEnded(bool was_reset);
  // The watch lacks what is known to be in the store, or the store is not that of the snapshot.
  bool behind() const { return table_.isBehind(); }
  // The latter. Until loaded().
  bool isOtherStore() const { return table_.state() == TableFreshness::State::kOtherStore; }

  // --- keeper ---
  using Holder = Incarnation::Holder;
  using HeldKey = naming::HeldKey;
  // The holder was confirmed, or is another one.
  void onHolder(std::function<void()> listener) { on_holder_ = std::move(listener); }
  // The machine may have stood still: the lease, too, has to be confirmed.
  void onStandstill(std::function<void()> listener) { on_standstill_ = std::move(listener); }
  // As Incarnation::hold().
  void hold(std::string uuid, int64_t lease, HeldKey slot, Incarnation::Written written,
            const node::Standstill::Mark& mark);
  void letGo();
  Holder holder() const { return incarnation_.holder(); }
  BootClock::time_point heldAsOf() const { return incarnation_.heldAsOf(); }
  const node::Standstill::Mark& heldMark() const { return incarnation_.heldMark(); }
  // The machine has stood still since an incarnation was last written or found: a copy of this process may have the lease.
  bool isInDoubt() const { return incarnation_.isInDoubt(); }
  // The slot was there then, under the lease; none: it has not been seen, or was not there when it was last looked for.
  std::optional<BootClock::time_point> slotAsOf() const { return slot_.asOf(); }
  // It was not there, or not under the lease, when it was last looked for: whatever the watch has shown. Or it has not been
  // looked for behind a new watch, and the names were old before.
  bool slotIsMissing() const { return slot_.isMissing(); }
  // It was read behind the watch that is open now, and was not there.
  bool slotIsGone() const { return slot_.isGone(); }
  // How long a pause may be that no lease is lost by.
  std::chrono::nanoseconds tolerance() const { return incarnation_.tolerance(); }
  node::Standstill& standstill() { return standstill_; }  // any thread
  // A new generation of the machine was reported.
  void suspect();

 private:
  enum class Write { kNothing, kIncarnation, kBeat };
  struct Question;

  runtime::Task<void> ask();
  Question question();
  void succeeded(const Question& asked);
  void takeUp(const Question& asked, store::TxnResult& answer);
  void failed(const store::StoreError& error, Write write);
  Write whatToWrite() const;
  bool readsSlot() const;
  void noteStandstill();
  void noteBreak();
  void doubtWatch();
  void tellHolder();
  void askSoon();
  void readBy(BootClock::time_point at) { next_read_ = std::min(next_read_, at); }
  BootClock::time_point nextDue() const;

  Context& context_;
  const std::chrono::nanoseconds lease_;
  const std::chrono::nanoseconds grace_;  // for an answer, and for an event to come
  node::Standstill standstill_;
  const std::function<bool()> watches_elsewhere_;
  uint64_t breaks_ = 0;  // of the store's connections, as last looked at
  std::function<void()> on_doubt_;
  std::function<void()> on_holder_;
  std::function<void()> on_standstill_;
  runtime::Event wake_;
  Backoff retry_;
  BootClock::time_point next_read_;
  BootClock::time_point not_before_;  // after a failure
  BootClock::time_point next_doubt_;
  Beat beat_;
  TableFreshness table_;
  Incarnation incarnation_;
  SlotReading slot_;
  uint64_t watches_ = 0;  // that were opened
  uint64_t holds_ = 0;    // counts hold() and letGo()
};

}  // namespace idetcd::naming
