// Takes the lowest free name of a pattern, so that nodes that start together end on 1…N with about four requests each.
//
//   1. LeaseGrant
//   2. Txn  put a ticket /idetcd/queue/<pattern>/<limit>/<uuid> under the lease, unless it has a claim already; read the
//           key of the node's former name
//   3. read at the revision of that: the pattern's keys, and the number of tickets (all of them would be N²/2 for N
//           nodes; they are read if not all have our limit). No transaction that writes reads them: each member would do
//           so while it applies nothing else
//           -> our ticket's place by age names our slot: the one that older tickets leave (slot_choice.h)
//   4. Txn  if the slot's create_revision is 0, no other node has reserved it, and our ticket is as it was put: put the
//           slot under the lease, delete the ticket; else read both again
//
// Without a free slot the ticket stays in the queue; the node's own watch shows its turn (WaitingLine), and of each
// limit it watches the last ticket before its own. A former key is put anew under the new lease, on condition that it is
// unchanged, if its holder has certainly ended (state_directory.h) or the store was set back; else the node waits for the
// end of that lease. The fencing token is the key's create_revision, or the value's if that is higher (taken back; store
// set back, keyspace.h).
//
// Invariants:
//   - At most one lease of ours holds anything in etcd: a lease is left behind only by a confirmed revoke. A successor
//     knows each one before a name is claimed under it, and revokes it once the name is its own.
//   - A claim whose answer was lost is read back: the slot's value carries our UUID. If it does not, the ticket is put
//     again: the claim requires the version that it had, and so cannot be applied any more.
//   - What has no answer is tried again under the same lease.
//   - A key of another owner, without our UUID or without a lease, is never overwritten.
// Scheduler's thread only.
#pragma once

#include "naming/context.h"
#include "naming/incarnation.h"
#include "naming/own_key_observer.h"
#include "naming/record_codec.h"
#include "naming/reservation.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"
#include "slots/name_pattern.h"
#include "slots/slot_choice.h"
#include "store/transaction.h"

namespace idetcd::naming {

class Claim {
 public:
  template <typename T>
  using Answer = runtime::Task<store::StoreResult<T>>;

  // The last claim of a process of this node that has ended for certain.
  struct Predecessor {
    uint64_t cluster_id = 0;           // where it claimed
    int64_t revision = 0;              // of that store then
    std::vector<int64_t> leases = {};  // that it had there
  };
  struct Options {
    slots::NamePattern pattern;
    std::chrono::seconds lease{20};
    std::chrono::seconds hold{0};  // see Reservation
    NodeRecord record;  // with our UUID
    std::optional<Predecessor> predecessor = {};
    // Keeps for a successor which leases may hold keys of ours, in which cluster, and calls back when that is done. May
    // be empty: nothing is kept.
    std::function<void(uint64_t cluster_id, std::vector<int64_t> leases, std::function<void()> kept)> keep_leases = {};
    // Called when the store has no key of ours under the name that was preferred. May be empty.
    std::function<void()> former_gone = {};
  };
  enum class WhenFull { kWait, kGiveUp };
  enum class ClaimOutcome {
    kClaimed,          // slot() and lease() are ours
    kFull,             // no slot was free: refusal(); ticket and lease are gone
    kDuplicateNodeId,  // another node uses our UUID; ticket and lease are gone
    kBoundElsewhere,   // bindTo() was called meanwhile; ticket and lease are gone
    kStopped,          // the protocol is being stopped; ticket and lease are gone, if etcd could be reached
  };
  struct ClaimedSlot {
    int64_t id = 0;
    std::string name;
    int64_t token = 0;            // the fencing token
    int64_t create_revision = 0;  // of the key
    int64_t said_token = 0;       // in the value; 0: none
    int64_t revision = 0;         // of the store when we put it
    std::string value;            // what we put
    Incarnation::Written incarnation;
  };

  // Arguments passed by reference outlive the claim.
  Claim(Context& context, Options options, OwnKeyObserver& own_key);

  // Tries until one of the outcomes. `preferred_id`: the slot to take if it is free; 0: none.
  // REQUIRES: nothing is held: the first call, or after release().
  runtime::Task<ClaimOutcome> run(int64_t preferred_id, WhenFull when_full);
  // From now on slot `id` is taken and no other, without regard to the queue, once no other node has it; none: any again.
  void bindTo(std::optional<int64_t> id);
  // Watches the tickets before ours while we wait. Until the protocol stops.
  runtime::Task<void> watchAhead();
  // The protocol stops: ends the waiting.
  void stop();
  // For the operator, after kFull.
  const std::string& refusal() const { return refusal_; }

  // REQUIRES: kClaimed.
  const ClaimedSlot& slot() const {
    assert(slot_.id > 0);
    return slot_;
  }
  // REQUIRES: it is held.
  const store::Lease& lease() const {
    assert(lease_);
    return *lease_;
  }
  // A keepalive was confirmed.
  void renewed(const store::Lease& lease) { lease_ = lease; }

  // What the slot is to say from now on: in the next claim, and in the one that is held after refresh(). The UUID may
  // change only while nothing is held.
  void setRecord(NodeRecord record);
  const NodeRecord& record() const { return record_; }
  // REQUIRES: kClaimed. The slot says something else than the record.
  bool outdated() const { return slot_.value != valueWith(tokenToSay(), slot_.id); }
  // The slot's token is at least this one after refresh(), and so is that of whoever has the name next.
  // REQUIRES: kClaimed.
  void raiseToken(int64_t token) { raised_ = token; }
  // Writes the record into the slot, on condition that the slot is still ours. False: it is not.
  runtime::Task<store::StoreResult<bool>> refresh();

  // Revokes the lease, with all keys that are bound to it. Returns when etcd has confirmed it; while stopping, after
  // few attempts.
  runtime::Task<void> release();
  // Revokes the leases of earlier processes once a name is claimed. Until that is done, or the protocol stops.
  runtime::Task<void> endFormerLeases();
  // REQUIRES: the slot is held.
  Answer<bool> renewReservation() { return reservation_.renew(record_.id, slot_.create_revision, lease_->id); }
  // While the node waits for a name.
  Answer<bool> prepareReservation();
  Reservation& reservation() { return reservation_; }
  const Reservation& reservation() const { return reservation_; }
  // Another process has our lease too, and keeps it: it is neither used nor revoked here any more.
  void leaveLease() {
    lives_on_ = lease_.has_value();
    lease_.reset();
    reservation_.leave();
  }
  // Whether a lease that is not held here any more may live on: until its time is over.
  bool livesOn() const { return lives_on_; }

 private:
  // No token of this name may be lower, as far as it is known.
  struct Floor {
    std::string name;
    int64_t token = 0;
    int64_t revision = 0;  // of its key; 0: there is none
  };
  struct Attempt {
    bool claimed = false;
    slots::QueueSnapshot line;  // if not
  };
  enum class AttemptOutcome { kClaimed, kFull, kBoundElsewhere, kOldLease };
  Answer<AttemptOutcome> attempt(int64_t preferred_id, WhenFull when_full);
  Answer<bool> grant();
  inline static const std::string kNoName;
  Answer<slots::QueueSnapshot> enqueue(int64_t preferred_id, const std::string& unclear = kNoName);
  Answer<slots::QueueSnapshot> putTicket(int64_t preferred_id, const std::string& unclear);
  Answer<slots::QueueSnapshot> lookAt(int64_t revision);
  Answer<store::TxnResult> ask(store::Transaction* transaction);
  Answer<slots::QueueSnapshot> look();
  Answer<slots::QueueSnapshot> waitForTurn(bool full);
  Answer<bool> untilSomethingChanges(BootClock::time_point poll_at, bool full);
  Answer<bool> keepLeaseWhileWaiting();
  Answer<bool> pauseBeforeNext(store::StoreError error, BootClock::time_point asked, Backoff& backoff);
  runtime::Task<bool> oldLeaseEnds();
  void follow(const slots::QueueSnapshot& line);
  void noteUnleased(const slots::QueueSnapshot& line, int64_t last_id);
  void noteFull(const slots::QueueSnapshot& line, WhenFull when_full);
  void noteWaiting();
  runtime::Task<void> noteHolder(std::string name);
  int64_t tokenToSay() const { return raised_ > slot_.token ? raised_ : slot_.said_token; }
  int64_t leastToken(const slots::QueueSnapshot& line, bool back) const;
  std::string valueWith(int64_t said_token, int64_t slot) const;
  void learnFloor(const store::RangeResult& found);
  void remember(ClaimedSlot slot);
  Answer<Attempt> take(slots::SlotChoice choice, slots::QueueSnapshot line);
  Answer<Attempt> readBack(slots::SlotChoice choice, std::string incarnation, store::StoreError unclear);
  Answer<slots::QueueSnapshot> readLine(store::RangeResult taken, store::RangeResult reserved, store::RangeResult queue,
                                        int64_t revision);
  bool findPlace(const std::vector<store::KeyValue>& tickets, slots::QueueSnapshot* line) const;
  std::chrono::nanoseconds delayAfter(const store::StoreError& error, Backoff& backoff);

  Answer<slots::QueueSnapshot> readSlots(store::RangeResult first_page, store::RangeResult reserved, int64_t revision);
  using AddPage = std::function<void(const std::vector<store::KeyValue>&)>;
  Answer<bool> readPages(store::RangeResult first_page, store::KeyRange range, store::RangeOptions options, AddPage add);
  void addReserved(const store::KeyValue& kv, slots::QueueSnapshot* line);
  void noteReserved(const slots::QueueSnapshot& line);
  std::string preferredKey(int64_t preferred_id) const;
  std::optional<slots::QueueSnapshot::OwnKey> readOwn(const store::RangeResult& found) const;
  bool isAbandoned(const store::KeyValue& kv) const;
  void keepLeases();
  runtime::Task<bool> revokeFormer();

  Context& context_;
  const Options options_;
  OwnKeyObserver& own_key_;
  NodeRecord record_;
  const store::KeyRange slots_;
  const store::KeyRange reserved_;
  const store::KeyRange queue_;
  std::string ticket_;
  int64_t first_ticket_ = 0;  // the revision at which it was put first; 0: it was not
  std::optional<store::Lease> lease_;
  ClaimedSlot slot_;    // the last one that was ours, too
  int64_t raised_ = 0;  // see raiseToken(); of slot_
  std::optional<int64_t> bound_;
  bool rebound_ = false;         // since the attempt began
  int64_t last_lease_ = 0;       // that we gave back, or tried to
  bool lives_on_ = false;        // see livesOn()
  std::vector<int64_t> former_;  // of the predecessor, as far as they are not known to have ended
  uint64_t keeps_ = 0;           // that were asked for
  runtime::Event kept_;          // a successor knows our lease
  runtime::Event claimed_;       // so there is no former key any more
  Floor floor_;                  // of the slot that was tried last
  Reservation reservation_;
  int64_t preferred_id_ = 0;                  // of the attempt
  std::vector<std::string> own_reservations_;  // that were seen, of other slots too

  // A key of ours under a lease that may be another's, for oldLeaseEnds().
  std::string old_name_;
  int64_t old_lease_ = 0;

  slots::WaitingLine waiting_;
  runtime::Event wake_;  // it may be our turn, or stop()
  bool look_again_ = false;
  std::vector<std::string> ahead_;  // the tickets before ours that we watch, while we wait
  int64_t ahead_seen_at_ = 0;       // the revision at which they were there
  runtime::Event ahead_changed_;

  std::string refusal_;
  bool full_noted_ = false;  // since the last claim, as the next
  bool waiting_noted_ = false;
  slots::SlotSet unleased_noted_;
  std::vector<int64_t> reserved_noted_;
};

}  // namespace idetcd::naming
