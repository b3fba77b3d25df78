// Keeps a name for this node while the node is away: a key /idetcd/reserved/<name> with the node's UUID, under a lease of
// its own, which lives on after the node's. A claim takes no name that is reserved for another node (claim.h). It only
// forbids: whether a node owns a name does not depend on it. Scheduler's thread only.
#pragma once

#include "naming/context.h"
#include "runtime/task.h"
#include "store/store.h"

namespace idetcd::naming {

class Reservation {
 public:
  // `hold`: for at least so long after the last renewal; 0: names are not reserved. `lease`: the node's.
  Reservation(Context& context, std::chrono::seconds hold, std::chrono::seconds lease)
      : context_(context), hold_(hold), lease_time_(lease) {}

  bool isWanted() const { return hold_.count() > 0; }
  std::chrono::nanoseconds renewalPeriod() const {
    return std::max(std::chrono::nanoseconds(hold_) / 12, std::chrono::nanoseconds(lease_time_) / 2);
  }

  template <typename T>
  using Answer = runtime::Task<store::StoreResult<T>>;

  // Before `name` is claimed: gets a lease for its reservation. `found`: the lease of the one that this node has of it; 0:
  // none. What was reserved under another name before is free. REQUIRES: isWanted().
  Answer<bool> prepare(std::string name, int64_t found);
  // What belongs into the claim of that name. REQUIRES: prepare() was answered, and neither leave() nor drop() called since.
  store::PutOp put(std::string uuid) const;
  // While the name is held: its key was created at `create_revision` under `lease`. A reservation that has gone is made
  // again, if that is so still.
  Answer<bool> renew(std::string uuid, int64_t create_revision, int64_t lease);
  // Another process may have the lease too: it is neither renewed nor revoked any more.
  void leave();
  // What is reserved is free.
  runtime::Task<void> drop();
  // Whether no other process can have the lease, unless it is a copy of this one.
  bool isGrantedHere() const { return granted_here_; }

 private:
  // A renewal may fail.
  std::chrono::seconds timeToLive() const {
    return hold_ + std::chrono::ceil<std::chrono::seconds>(renewalPeriod() * 3);
  }
  std::chrono::nanoseconds timeout() const;
  Answer<bool> keep(int64_t lease);
  Answer<bool> grant();

  Context& context_;
  const std::chrono::seconds hold_;
  const std::chrono::seconds lease_time_;
  std::string name_;
  std::optional<store::Lease> lease_;
  std::optional<std::chrono::seconds> granted_time_;  // instead of timeToLive(): etcd has a least one
  bool granted_here_ = false;
  uint64_t changes_ = 0;  // by prepare(), leave() and drop(): what was asked before says nothing any more
};

}  // namespace idetcd::naming
