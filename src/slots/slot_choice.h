// Which slot a node takes: the rule by which nodes that start together spread over the free slots without asking each
// other. Pure; any thread.
#pragma once

#include "slots/name_pattern.h"
#include "slots/slot_set.h"

namespace idetcd::slots {

// One transaction's view of the keys and of the queue of tickets, at one revision.
struct QueueSnapshot {
  SlotSet taken;                // those of the pattern, up to its limit
  std::optional<size_t> rank;   // of our ticket, by age: 0 is the oldest. None: it is not in the queue (yet)
  bool far_back = false;        // no rank, because so many tickets are older that not all were read
  int64_t ticket_revision = 0;  // create_revision of our ticket
  // The key of the preferred slot, if it carries our UUID under a lease: this node had it before.
  struct OwnKey {
    int64_t mod_revision = 0;
    int64_t create_revision = 0;
    int64_t token = 0;  // of the one that put it
    int64_t lease = 0;
    bool abandoned = false;  // it is certain that the one that put it owns it no more
  };
  std::optional<OwnKey> own = {};
  int64_t revision = 0;  // of the store when all this was read
  // The store has shown a higher one before, or a token above it: it was set back, and its revisions are no new tokens.
  bool set_back = false;
  SlotSet unleased = {};   // of those taken, the ones whose keys are bound to no lease: nothing will free them
  std::string ahead = {};  // the ticket just before ours, if it was read
};

struct SlotChoice {
  enum class Kind {
    kTake,
    kTakeBack,  // our own key, which an earlier life of this node has left
    kOldLease,  // our own key, but its holder may be alive: another process with our UUID
    kWait,      // there are free slots, but older tickets for all of them; some of those may still die
    kFull,      // every slot is taken
    kUnqueued,  // our ticket is gone
  };
  Kind kind = Kind::kUnqueued;
  int64_t id = 0;
  std::string name;
};

// The free slot whose place among the free ones is our ticket's rank; instead of it `preferred_id` (0: none) if it is
// free too: a node that lost its name for a while comes back to it, but never ahead of a node that waits. In the time
// of a walk over the runs of taken slots, whatever the limit.
SlotChoice chooseSlot(const NamePattern& pattern, const QueueSnapshot& line, int64_t preferred_id);

}  // namespace idetcd::slots
