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
// A node that crashed and is back finds its UUID in the key of its last name: it puts the key anew under the new lease,
// on condition that it is unchanged since it was read. That detaches it from the old lease, so it neither waits for
// that one to end nor loses the key when it does. The key keeps its create_revision, so the node keeps its token.
//
// Invariants:
//   - At most one lease of ours holds anything in etcd. A lease is left behind only by a confirmed revoke: whatever
//   request
//     was still under way can then no longer be applied, so an unclear failure never ends in two slots.
//   - A claim whose answer was lost is read back: the slot's value carries our UUID.
//   - Nothing is ever put over somebody else's key: one that does not carry our UUID.
// Completion thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/context.h"
#include "cluster/name_pattern.h"
#include "cluster/own_key.h"
#include "cluster/record_codec.h"
#include "cluster/slot_choice.h"
#include "etcd/client.h"
#include "etcd/task.h"

namespace idetcd::cluster {

class Claim {
 public:
  struct Options {
    NamePattern pattern;
    int64_t limit = 10;
    std::chrono::seconds lease{20};
    NodeRecord record;  // with our UUID
  };
  enum class Outcome {
    kClaimed,  // slot() and lease() are ours
    kFull,     // no slot was free; ticket and lease are gone
    kStopped,  // the Member is being stopped; ticket and lease are gone, if etcd could be reached
  };
  struct Slot {
    int64_t id = 0;
    std::string name;
    int64_t token = 0;     // create_revision of the key: the fencing token
    int64_t revision = 0;  // of the store when we put it
    std::string value;     // what we put
  };

  // What is passed by reference outlives the claim.
  Claim(Context& context, Options options, OwnKey& own_key);

  // Tries until one of the outcomes. `preferred_id`: the slot to take if it is free; 0: none.
  // REQUIRES: nothing is held: the first call, or after release().
  etcd::Task<Outcome> run(int64_t preferred_id);

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
  bool outdated() const { return slot_.value != value_; }
  // Writes the record into the slot, on condition that the slot is still ours. False: it is not.
  etcd::Task<etcd::EtcdResult<bool>> refresh();

  // Revokes the lease, with all that hangs on it. Returns when etcd has confirmed it; while stopping, after few
  // attempts.
  etcd::Task<void> release();

 private:
  struct Attempt {
    bool claimed = false;
    Line line;  // if not
  };
  template <typename T>
  using Answer = etcd::Task<etcd::EtcdResult<T>>;

  Answer<Outcome> attempt(int64_t preferred_id);
  Answer<bool> grant();
  Answer<Line> enqueue(int64_t preferred_id);
  Answer<Line> look();
  Answer<bool> keepLeaseWhileWaiting();
  Answer<Attempt> take(SlotChoice choice, Line line);
  Answer<Attempt> readBack(SlotChoice choice, etcd::EtcdError unclear);
  Answer<Line> readLine(std::vector<etcd::OpResult> results, size_t first, int64_t revision);
  std::vector<etcd::Op> lineReads() const;
  std::chrono::nanoseconds delayAfter(const etcd::EtcdError& error, Backoff& backoff);

  Answer<Line> readEnqueued(std::vector<etcd::OpResult> results, int64_t revision);
  Answer<Line> readSlots(etcd::RangeResult first_page, int64_t revision);
  std::string preferredKey(int64_t preferred_id) const;
  std::optional<Line::OwnKey> readOwn(const etcd::RangeResult& found) const;

  Context& context_;
  const Options options_;
  OwnKey& own_key_;
  NodeRecord record_;
  std::string value_;
  const etcd::KeyRange slots_;
  const etcd::KeyRange queue_;
  std::string ticket_;
  std::optional<etcd::Lease> lease_;
  Slot slot_;
};

}  // namespace idetcd::cluster
