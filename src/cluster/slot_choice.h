// Which slot a node takes: the rule by which nodes that start together spread over the free slots without asking each
// other. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "cluster/name_pattern.h"

namespace idetcd::cluster {

// What one transaction has shown of the keys and of the queue of tickets, at one revision.
struct Line {
  std::unordered_set<std::string> keys;  // taken: those of the pattern's names, and strangers, which do not matter
  std::optional<size_t> rank;            // of our ticket, by age: 0 is the oldest. None: it is not in the queue (yet)
  bool far_back = false;                 // no rank, because so many tickets are older that not all were read
  int64_t ticket_revision = 0;           // create_revision of our ticket
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
  std::unordered_set<std::string> unleased = {};  // of the keys, those that hang on no lease: nobody will free them
  std::string ahead = {};                         // the ticket just before ours, if it was read
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
// free too: a node that lost its name for a while comes back to it, but past nobody who waits. Renders no more names
// than there are keys and tickets ahead.
SlotChoice chooseSlot(const NamePattern& pattern, int64_t limit, const Line& line, int64_t preferred_id);

// The free slots, lowest first, `most` at most.
std::vector<std::string> freeSlots(const NamePattern& pattern, int64_t limit, const Line& line, size_t most);

// The slots that are held by keys without a lease, lowest first, of those up to `last_id`.
std::vector<std::string> unleasedSlots(const NamePattern& pattern, int64_t last_id, const Line& line);

}  // namespace idetcd::cluster
