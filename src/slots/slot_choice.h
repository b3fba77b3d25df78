// The choice of a node's slot: the rule by which nodes that start together spread over the free slots without asking
// each other. Pure; any thread.
#pragma once

#include <initializer_list>

#include "slots/name_pattern.h"

namespace idetcd::slots {

// A set of slots, kept as runs of consecutive IDs: slots that are taken in order take one run, however many they are,
// and free ones take no memory. Completion thread only.
class SlotSet {
 public:
  SlotSet() = default;
  SlotSet(std::initializer_list<int64_t> ids);

  // In logarithmic time. REQUIRES: id > 0.
  bool insert(int64_t id);  // false: it is there already
  bool erase(int64_t id);   // false: it is not there
  bool contains(int64_t id) const;

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // The ID, from 1 on, that is not in the set and has `rank` such IDs before it. In the time of a walk over the runs.
  int64_t missing(size_t rank) const;
  // How many of the IDs from 1 to `last` are not in the set. In the same time. REQUIRES: last >= 0.
  int64_t missingUpTo(int64_t last) const;
  // The lowest IDs, `most` at most.
  std::vector<int64_t> lowest(size_t most) const;

 private:
  using Runs = std::map<int64_t, int64_t>;  // first -> last; between two runs an ID is missing

  // The run with `id` in it, or the last one before it; end() if none.
  Runs::const_iterator find(int64_t id) const;

  Runs runs_;
  int64_t size_ = 0;
};

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
  int64_t ticket_revision = 0;  // mod_revision of our ticket
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
  SlotSet reserved = {};  // of those taken, the ones that nobody has, and that wait for other nodes
  bool reserving = false;  // names are reserved: one that goes may stay taken
  // A slot that is not taken, and that waits for this node.
  struct Reserved {
    int64_t id = 0;
    int64_t mod_revision = 0;  // of the reservation
  };
  std::optional<Reserved> own_reservation = {};
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

// The slot that is reserved for this node, whoever waits: no other could have it. Else the one that is left for us if each
// older ticket, in turn, gets the lowest free one, unless that is above its limit. None: it is not our turn. In the time of a
// walk over the runs of taken slots for each run of tickets, whatever the limit. REQUIRES: line.older.
std::optional<int64_t> slotInTurn(int64_t limit, const QueueSnapshot& line);

// That slot; instead of one in turn `preferred_id` (0: none) if it is free too and no older ticket goes without a slot for it:
// a node that lost its name for a while comes back to it, but never ahead of a node that waits.
SlotChoice chooseSlot(const NamePattern& pattern, const QueueSnapshot& line, int64_t preferred_id);

// Slot `id` and no other, whoever waits: kWait while another node has it. Never kFull.
SlotChoice chooseOnly(const NamePattern& pattern, const QueueSnapshot& line, int64_t id);

// Whether it is this node's turn for a slot: a free one is left for it by the tickets ahead (slotInTurn()), from one look
// at etcd and the node's own watch since. One freed slot brings one node to etcd, however many wait. A slot taken
// meanwhile counts as taken by the first ticket ahead that can, and makes another look necessary before it is our turn.
// Completion thread only; no I/O.
class WaitingLine {
 public:
  // `on_change` is called when isOurTurn() or mustLook() may say something else.
  WaitingLine(NamePattern pattern, std::function<void()> on_change)
      : pattern_(std::move(pattern)), on_change_(std::move(on_change)) {}

  // From now on it is our turn when slot `id` is free, and only then; 0: as above.
  void waitOnlyFor(int64_t id) { only_ = id; }

  // A look is sent: from now on changes are kept, since they may be newer than what it shows.
  void beginLook();
  // Its result. Changes that it knew of do not count again. If it shows our turn, those since do not count at all: the
  // taking transaction finds out, and where many take slots no other look would be the last one.
  void endLook(QueueSnapshot line);

  bool isOurTurn() const { return isInTurn() && !guessed_; }
  // No slot is free.
  bool isFull() const { return !looking_ && line_.taken.size() == pattern_.limit(); }
  // The state has become uncertain: only another look helps.
  bool mustLook() const { return must_look_ || (isInTurn() && guessed_); }
  // The slots and the place as they are now. REQUIRES: endLook(). beginLook() comes next.
  QueueSnapshot take() { return std::exchange(line_, {}); }

  // --- mirror ---
  void put(std::string_view key, int64_t revision);
  void remove(std::string_view key, int64_t revision);
  void lookAgain();

 private:
  // Between a look and its answer; more make another look necessary.
  static constexpr size_t kMaxPending = 10'000;

  struct Change {
    int64_t id = 0;
    int64_t revision = 0;
    bool put = false;
  };
  void change(std::string_view key, int64_t revision, bool put);
  void apply(int64_t id, bool put);
  bool isInTurn() const {
    if (looking_ || !line_.older) return false;
    return only_ > 0 ? !line_.taken.contains(only_) : slotInTurn(pattern_.limit(), line_).has_value();
  }

  const NamePattern pattern_;
  const std::function<void()> on_change_;
  int64_t only_ = 0;
  QueueSnapshot line_;
  std::vector<Change> pending_;
  bool looking_ = false;
  bool must_look_ = false;
  // Since the look somebody has put a name: it may be none of those ahead but a younger node, whose limit is higher or
  // whose former name it is, or the Go plugin. Or one has gone that may be reserved.
  bool guessed_ = false;
};

}  // namespace idetcd::slots
