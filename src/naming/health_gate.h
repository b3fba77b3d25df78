// Which sick nodes of a cluster may be out at once: as many as leave a share of all in. Each sick node has a ticket in the
// store, under a lease of its own:
//
//   /idetcd/sick/<pattern>/<uuid>
//
// Tickets are in the order of their create_revision. A node counts as out if its ticket is not behind this node's, or if its
// name has no address. All nodes count that hold a name of the pattern under a lease, and those that have a ticket. This
// node may be out if at least the share of all would be in. Of two that ask at the same time, the one with the later ticket
// sees the other's, as each puts its ticket before it reads: so all may be sick at once, and the share is in.
//
// Not seen is what happens between this node's read and its write: another node that dies, gives its name up or is drained
// by an operator, within the time of two requests. The next question, an interval later, sees it.
#pragma once

#include "naming/context.h"
#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::naming {

// What a node of the cluster shows. Its UUID; empty: it is a Go plugin's.
struct SeenNode {
  std::string uuid;
  bool is_drained = false;
};

// `tickets`: the UUIDs of those that are not behind `own`'s, which is one of them. Pure.
bool mayBeOut(const std::vector<SeenNode>& holders, const std::vector<std::string>& tickets, int floor_percent);

// Scheduler's thread only; one call at a time.
class HealthGate {
 public:
  struct Options {
    slots::NamePattern pattern;
    int floor_percent = 50;
    std::chrono::nanoseconds interval{std::chrono::seconds(10)};  // between two questions
  };

  HealthGate(Lifetime& lifetime, Options options) : lifetime_(lifetime), options_(std::move(options)) {}

  template <typename T>
  using Answer = runtime::Task<store::StoreResult<T>>;

  // Keeps this node's ticket, and reads whether it may be out. Between two calls `interval` may pass. `store` is the same at
  // each, or the other one of a move: then the ticket is put there.
  Answer<bool> ask(store::Store& store, std::string uuid);
  // The node is well: the ticket goes. What cannot be reached ends with its lease.
  runtime::Task<void> leave(store::Store& store);

 private:
  Answer<bool> keepLease(store::Store& store);
  Answer<std::vector<std::string>> readTickets(store::Store& store, const std::string& uuid);
  Answer<std::vector<SeenNode>> readHolders(store::Store& store) const;

  Lifetime& lifetime_;
  const Options options_;
  int64_t lease_ = 0;  // of the ticket; 0: none
};

}  // namespace idetcd::naming
