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
      : context_(context), hold_(hold), node_lease_(lease) {}

  bool isWanted() const { return hold_.count() > 0; }
  // A renewal may fail.
  std::chrono::nanoseconds renewalPeriod() const {
    return std::max(std::chrono::nanoseconds(hold_) / 12, std::chrono::nanoseconds(node_lease_) / 2);
  }

  template <typename T>
  using Answer = runtime::Task<store::StoreResult<T>>;

  // Gets the lease, that of this node's reservation of `name` if there is one, or renews it. REQUIRES: isWanted().
  Answer<bool> prepare(std::string_view name, std::string_view uuid);
  bool isPrepared() const { return lease_.has_value(); }
  // What belongs into the claim of `name`. REQUIRES: prepare() was answered, and neither leave() nor drop() called since.
  store::PutOp put(std::string_view name, std::string uuid) const;
  // The claim was applied.
  void claimed(std::string name);
  // While the name is held: its key was created at `create_revision` under `lease`. A reservation that has gone is made
  // again, if that is so still.
  Answer<bool> renew(std::string uuid, int64_t create_revision, int64_t lease);
  // Another process may have the lease too: it is neither renewed nor revoked any more.
  void leave();
  bool isGrantedHere() const { return granted_here_; }
  // What is reserved is free.
  runtime::Task<void> drop();

 private:
  std::chrono::seconds timeToLive() const {
    return hold_ + std::chrono::ceil<std::chrono::seconds>(renewalPeriod() * 3);
  }

  Context& context_;
  const std::chrono::seconds hold_;
  const std::chrono::seconds node_lease_;
  std::string name_;
  std::optional<store::Lease> lease_;
  bool granted_here_ = false;
  uint64_t changes_ = 0;  // of what leave(), drop() and claimed() change: what was asked before says nothing any more
};

}  // namespace idetcd::naming
