// Which slot a node takes: the rule by which nodes that start together spread over the free slots without asking each
// other. Pure; any thread.
#pragma once

#include "slots/name_pattern.h"
#include "slots/slot_set.h"

namespace idetcd::slots {

// One transaction's view of the keys and of the queue of tickets, at one revision.
struct QueueSnapshot {
  // Consecutive tickets whose nodes have one limit; one above ours counts as ours.
  struct Tickets {
    int64_t limit = 0;
    size_t count = 0;
  };
  SlotSet taken;                              // those of the pattern, up to its limit
  std::optional<std::vector<Tickets>> older;  // than our ticket, oldest first. None: it is not in the queue (yet)
  bool far_back = false;        // not in `older`, because so many tickets are older that not all were read
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
  SlotSet unleased = {};  // of those taken, the ones whose keys are bound to no lease: nothing will free them
  std::vector<std::string> ahead = {};  // of each limit in `older` the youngest ticket, if they were read
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

// The slot that is left for us if each older ticket, in turn, gets the lowest free one, unless that is above its limit.
// None: it is not our turn. In the time of a walk over the runs of taken slots for each run of tickets, whatever the
// limit. REQUIRES: line.older.
std::optional<int64_t> slotInTurn(int64_t limit, const QueueSnapshot& line);

// That slot; instead of it `preferred_id` (0: none) if it is free too and no older ticket goes without a slot for it: a
// node that lost its name for a while comes back to it, but never ahead of a node that waits.
SlotChoice chooseSlot(const NamePattern& pattern, const QueueSnapshot& line, int64_t preferred_id);

}  // namespace idetcd::slots
