// Keeps one name for this node: claims it, renews its lease, gives it up when etcd says so, and claims again. It is
// owned while, within the lease time less a margin, a keepalive and a read of our incarnation (confirmation.h) were
// sent that etcd confirmed; our watch has shown the key of our claim (before the first snapshot: a quorum's read of
// it); and no clock shows a standstill. The deadline passes here, without any request, before etcd gives the name to
// another node. Scheduler's thread only, but for ownership().
#pragma once

#include "base/clock.h"
#include "naming/claim.h"
#include "naming/confirmation.h"
#include "naming/context.h"
#include "naming/own_key_observer.h"
#include "naming/own_name.h"
#include "naming/ownership.h"
#include "records/record_store.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"

namespace idetcd::naming {

class NameKeeper final : public OwnName {
 public:
  // Where no name is free: waits for one, or, if `exit_when_full` and no name was held yet, calls `on_fatal`, once. A
  // node that has had a name always waits: it still serves the names of the others. `on_change` is called whenever
  // ownership() may say something else, but for the deadline, which passes by itself. `records` is what the
  // mirror writes.
  NameKeeper(Context& context, Claim::Options options, bool exit_when_full, const records::RecordStore& records,
             OwnKeyObserver& own_key, Confirmation& confirmation, std::function<void(std::string)> on_fatal,
             std::function<void()> on_change);

  // --- before run() ---
  // The slot to take if it is free, or back if it carries our UUID.
  void prefer(int64_t id) { preferred_id_ = id; }

  // From now on takes slot `id` and no other, and gives another one back; 0: none; without a value any, as at first. No
  // token that is claimed from now on is lower than `token`.
  void bindTo(std::optional<int64_t> id, int64_t token);
  // Of the slot that is held, whether or not it is owned; 0: none is.
  int64_t heldId() const { return holding_ ? claim_.slot().id : 0; }
  int64_t heldToken() const { return holding_ ? claim_.slot().token : 0; }
  // The token of the name that is owned becomes this one, if it is lower.
  void raiseToken(int64_t token);

  // Until the protocol stops; then lease, ticket and slot are given back.
  runtime::Task<void> run();
  // The protocol stops: ends run(). Ownership ends at once.
  void stop();

  // Watches the queue while this node waits for a name. Until the protocol stops.
  runtime::Task<void> watchQueue() { return claim_.watchAhead(); }

  // Ends what earlier processes of this node have left. Until that is done, or the protocol stops.
  runtime::Task<void> endFormerLeases() { return claim_.endFormerLeases(); }

  // After run(): whether its lease is gone, and not left to its time.
  bool gaveBack() const { return !claim_.livesOn(); }

  // Whether this machine is told the name. While it is, the lease is not given back at stop(), nor when the key is
  // overwritten, within kWithdrawal.
  static constexpr std::chrono::seconds kWithdrawal{1};
  void setTold(bool told) { told ? withdrawn_.reset() : withdrawn_.set(); }

  // Keeps the slot's value up to date. Until the protocol stops.
  runtime::Task<void> keepRecord();
  // Keeps the name reserved, where that is wanted. Until the protocol stops.
  runtime::Task<void> keepReservation();

  std::optional<Ownership> ownership() const override;
  void noteGeneration() override { confirmation_.standstill().noteGeneration(); }
  bool isBeingConfirmed() const override;
  void suspect() override { confirmation_.suspect(); }
  const NodeRecord& record() const override { return claim_.record(); }
  const records::HostAddresses& addresses() const { return addresses_; }  // also those of a drained node
  std::string uuid() const override;
  void setAddresses(const records::MemberAddresses& addresses) override;
  void setDrained(bool drained) override;
  runtime::Task<bool> whenPublished(std::chrono::nanoseconds patience) override;

 private:
  enum class Loss { kStopped, kBoundElsewhere, kLeaseLost, kKeyGone, kConflict, kReverted, kDuplicateNodeId, kCloned };
  struct AfterLoss {
    bool waits_for_withdrawal = false;  // until the lease is given back
    bool new_uuid = false;
    bool at_once = false;  // the next name is asked for without a pause
    bool ends = false;
  };
  static AfterLoss afterLoss(Loss loss);

  // What a keepalive, a read of the incarnation and the key have shown.
  struct Evidence {
    Ownership ownership;
    bool seen = false;                 // the key, by the mirror: it is there while what the mirror shows is the present
    BootClock::time_point read_until;  // a quorum has shown it, which counts until then,
    BootClock::time_point read_counts_from;  // and from then on; before, the watch is waited for
    node::Standstill::Mark mark;             // before all of it
  };

  runtime::Task<Loss> hold();
  runtime::Task<bool> afterHolding(Loss loss, bool held_long, Backoff& backoff);
  runtime::Task<bool> keepAlive(Backoff& retry);  // false: the lease is lost
  void scheduleKeepAlive();
  void announce(BootClock::time_point started);
  bool wasReleased(Loss loss) const;
  bool leavesReservation(Loss loss) const;
  void recordLoss(Loss loss);
  void regenerateNodeId();
  void updateRecord();
  // The proof that the name is ours; nothing while it is not.
  std::optional<Evidence> findEvidence() const;
  void publish();
  void disown();
  OwnKeyObserver::Held held() const;
  BootClock::time_point deadline() const;
  BootClock::time_point readUntil() const;
  void renewNow();

  Context& context_;
  const Claim::Options options_;
  const bool exit_when_full_;
  const records::RecordStore& records_;
  OwnKeyObserver& own_key_;
  Confirmation& confirmation_;
  const std::function<void(std::string)> on_fatal_;
  const std::function<void()> on_change_;
  Claim claim_;
  runtime::Event wake_;       // the own key was seen, or stop()
  runtime::Event moved_;      // keepRecord() may have something to do
  runtime::Event published_;  // it has nothing to do
  runtime::Event withdrawn_;  // this machine is told no name
  records::MemberAddresses addresses_;
  bool drained_ = false;
  int64_t preferred_id_ = 0;
  std::optional<int64_t> bound_;  // see bindTo()

  bool holding_ = false;  // between a claim and its loss
  bool stopped_in_doubt_ = false;
  bool ever_held_ = false;
  bool overdue_logged_ = false;  // the deadline has passed without an answer
  BootClock::time_point next_keepalive_;
  node::Standstill::Mark renewed_mark_;  // before the last renewal was sent
  BootClock::time_point claimed_at_;

  mutable std::mutex mutex_;
  std::optional<Evidence> evidence_;  // guarded by mutex_
  std::string uuid_;                  // guarded by mutex_
};

}  // namespace idetcd::naming
