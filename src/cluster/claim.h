// Takes the lowest free name of a pattern, so that nodes that start together end on 1…N with about three requests each.
//
//   1. LeaseGrant
//   2. Txn  put a ticket /idetcd/queue/<pattern>/<uuid> under the lease; read the pattern's keys and the queue, and the
//           key of the name that this node had before, if any. Of the queue only the number of tickets is read, which
//           is the rank of the youngest: N nodes at once would read N²/2 tickets otherwise
//           -> our ticket's rank by age names our slot: the rank-th free one (slot_choice.h)
//   3. Txn  if the slot's create_revision is 0 and our ticket is there: put the slot under the lease, delete the
//   ticket;
//           else read both again
//
// Where every slot is taken the ticket stays, and with it the place in the queue. Nobody asks etcd again and again: a
// node goes on when its own watch has shown that more slots are free than tickets are ahead of it (waiting_line.h), and
// it watches the one ticket just before its own, in case that its node gives up waiting.
//
// A node that crashed and is back finds its UUID in the key of its last name. If it is certain that the one that put it
// owns it no more (its lease is that of a process of this very state directory that has ended, or this node has claimed
// the name later: the store was set back), the node puts the key anew under the new lease, on condition that it is
// unchanged since it was read. That detaches it from the old lease, so it neither waits for that one to end nor loses
// the key when it does. If not, the old holder may be alive, cut off from etcd: the node waits until that lease has
// ended, and claims as everybody does. If the lease is renewed meanwhile, another node uses the same UUID.
//
// The fencing token belongs to one holder, which is one claim: it is the key's create_revision, or what the value says
// if that is higher. The value says it where the create_revision does not rise by itself: when a key is taken back, and
// in a store that was set back.
//
// Invariants:
//   - At most one lease of ours holds anything in etcd. A lease is left behind only by a confirmed revoke: whatever
//   request
//     was still under way can then no longer be applied, so an unclear failure never ends in two slots.
//   - A claim whose answer was lost is read back: the slot's value carries our UUID.
//   - Nothing is ever put over somebody else's key: one that does not carry our UUID, or hangs on no lease.
// Completion thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "cluster/context.h"
#include "cluster/name_pattern.h"
#include "cluster/own_key.h"
#include "cluster/record_codec.h"
#include "cluster/slot_choice.h"
#include "cluster/waiting_line.h"
#include "etcd/client.h"
#include "etcd/task.h"

namespace idetcd::cluster {

class Claim {
 public:
  // The last claim of a process of this node that has ended for certain.
  struct Predecessor {
    int64_t lease = 0;
    int64_t revision = 0;  // of the store when it claimed
  };
  struct Options {
    NamePattern pattern;
    int64_t limit = 10;
    std::chrono::seconds lease{20};
    NodeRecord record;  // with our UUID
    std::optional<Predecessor> predecessor = {};
  };
  enum class WhenFull { kWait, kGiveUp };
  enum class Outcome {
    kClaimed,   // slot() and lease() are ours
    kFull,      // no slot was free: refusal(); ticket and lease are gone
    kDouble,    // another node uses our UUID; ticket and lease are gone
    kStopped,   // the Member is being stopped; ticket and lease are gone, if etcd could be reached
    kOldLease,  // never of run()
  };
  struct Slot {
    int64_t id = 0;
    std::string name;
    int64_t token = 0;            // the fencing token
    int64_t create_revision = 0;  // of the key
    int64_t said_token = 0;       // in the value; 0: none
    int64_t revision = 0;         // of the store when we put it
    std::string value;            // what we put
  };

  // What is passed by reference outlives the claim.
  Claim(Context& context, Options options, OwnKey& own_key);

  // Tries until one of the outcomes. `preferred_id`: the slot to take if it is free; 0: none.
  // REQUIRES: nothing is held: the first call, or after release().
  etcd::Task<Outcome> run(int64_t preferred_id, WhenFull when_full);
  // Watches the ticket before ours while we wait. Until the Member stops.
  etcd::Task<void> watchAhead();
  // The Member stops: ends the waiting.
  void stop();
  // For the operator, after kFull.
  const std::string& refusal() const { return refusal_; }

  // REQUIRES: kClaimed.
  const Slot& slot() const { return slot_; }
  const etcd::Lease& lease() const { return *lease_; }
  // A keepalive was confirmed.
  void renewed(const etcd::Lease& lease) { lease_ = lease; }

  // What the slot is to say from now on: in the next claim, and in the one that is held after refresh(). The UUID may
  // change only while nothing is held.
  void setRecord(NodeRecord record);
  const NodeRecord& record() const { return record_; }
  // REQUIRES: kClaimed. The slot says something else than the record.
  bool outdated() const { return slot_.value != valueWith(slot_.said_token); }
  // Writes the record into the slot, on condition that the slot is still ours. False: it is not.
  etcd::Task<etcd::EtcdResult<bool>> refresh();

  // Revokes the lease, with all that hangs on it. Returns when etcd has confirmed it; while stopping, after few
  // attempts.
  etcd::Task<void> release();
  // Another process has our lease too, and keeps it: it is neither used nor revoked here any more.
  void leaveLease() { lease_.reset(); }

 private:
  struct Attempt {
    bool claimed = false;
    Line line;  // if not
  };
  template <typename T>
  using Answer = etcd::Task<etcd::EtcdResult<T>>;

  Answer<Outcome> attempt(int64_t preferred_id, WhenFull when_full);
  Answer<bool> grant();
  Answer<Line> enqueue(int64_t preferred_id);
  Answer<Line> look();
  Answer<Line> waitForTurn(bool full);
  Answer<bool> untilSomethingChanges(BootClock::time_point poll_at, bool full);
  Answer<bool> keepLeaseWhileWaiting();
  etcd::Task<bool> oldLeaseEnds();
  void follow(const Line& line);
  void noteUnleased(const Line& line, int64_t last_id);
  void noteFull(const Line& line, WhenFull when_full);
  int64_t leastToken(const Line& line, bool back) const;
  std::string valueWith(int64_t said_token) const;
  void remember(Slot slot);
  Answer<Attempt> take(SlotChoice choice, Line line);
  Answer<Attempt> readBack(SlotChoice choice, etcd::EtcdError unclear);
  Answer<Line> readLine(std::vector<etcd::OpResult> results, size_t first, int64_t revision);
  std::vector<etcd::Op> lineReads() const;
  std::chrono::nanoseconds delayAfter(const etcd::EtcdError& error, Backoff& backoff);

  Answer<Line> readEnqueued(std::vector<etcd::OpResult> results, int64_t revision);
  Answer<Line> readSlots(etcd::RangeResult first_page, int64_t revision);
  std::string preferredKey(int64_t preferred_id) const;
  std::optional<Line::OwnKey> readOwn(const etcd::RangeResult& found) const;
  bool isAbandoned(const etcd::KeyValue& kv) const;

  Context& context_;
  const Options options_;
  OwnKey& own_key_;
  NodeRecord record_;
  const etcd::KeyRange slots_;
  const etcd::KeyRange queue_;
  std::string ticket_;
  std::optional<etcd::Lease> lease_;
  Slot slot_;               // the last one that was ours, too
  int64_t last_lease_ = 0;  // that we gave back, or tried to

  // A key of ours under a lease that may be another's, for oldLeaseEnds().
  std::string old_name_;
  int64_t old_lease_ = 0;

  WaitingLine waiting_;
  etcd::Event wake_;  // it may be our turn, or stop()
  bool look_again_ = false;
  std::string ahead_;          // the ticket before ours, while we wait; empty: none
  int64_t ahead_seen_at_ = 0;  // the revision at which it was there
  etcd::Event ahead_changed_;

  std::string refusal_;
  bool full_noted_ = false;  // since the last claim
  std::unordered_set<std::string> unleased_noted_;
};

}  // namespace idetcd::cluster
