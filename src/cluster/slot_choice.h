// Which slot a node takes: the rule by which nodes that start together spread over the free slots without asking each
// other. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>

#include "cluster/name_pattern.h"

namespace idetcd::cluster {

// What one transaction has shown of the keys and of the queue of tickets, at one revision.
struct Line {
  std::unordered_set<std::string> keys;  // taken: those of the pattern's names, and strangers, which do not matter
  std::optional<size_t> rank;            // of our ticket, by age: 0 is the oldest. None: it is not in the queue (yet)
  bool far_back = false;                 // no rank, because so many tickets are older that not all were read
  int64_t ticket_revision = 0;           // create_revision of our ticket
  // The key of the preferred slot, if it carries our UUID: this node had it before it crashed.
  struct OwnKey {
    int64_t mod_revision = 0;
    int64_t create_revision = 0;
  };
  std::optional<OwnKey> own = {};
};

struct SlotChoice {
  enum class Kind {
    kTake,
    kTakeBack,  // our own key, which an earlier life of this node has left
    kWait,      // there are free slots, but older tickets for all of them; some of those may still die
    kFull,      // every slot is taken
    kUnqueued,  // our ticket is gone
  };
  Kind kind = Kind::kUnqueued;
  int64_t id = 0;
  std::string name;
};

// The free slot whose place among the free ones is our ticket's rank; `preferred_id` (0: none) before all others if it
// is free: a node that lost its name for a while comes back to it. Renders no more names than there are keys and
// tickets ahead.
SlotChoice chooseSlot(const NamePattern& pattern, int64_t limit, const Line& line, int64_t preferred_id);

}  // namespace idetcd::cluster
