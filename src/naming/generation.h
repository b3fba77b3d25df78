// Counts the changes of a cluster's membership, so that one roster can be told from the next: a number that is the same on
// every node, if all have the same limit, and rises when a name is claimed, changes its value or goes.
//
// It is the store's revision of the last such change, which rises with it and in the same transaction, also where the
// store itself ends a lease; a counter's key in each claim would be a second event for every node. What the names that
// are left do not show, as the revision at which another one has gone, is kept for those that come later:
//
//   /idetcd/generation/<pattern>    "REVISION OFFSET": of the last change that was noted, without a lease
//
// The node with the lowest ID notes it, a moment later, so that several changes are one write; the next two do so if it does
// not, and where no node holds a name, any. A node reads the key when it has read the names, and once more some seconds
// after that. Until the first of these reads the generation is not known.
//
// Where the store was set back, a node that notes and has seen a higher generation sets the offset, which is added to
// revisions. So the generation goes on rising if one of those nodes lives. It stands still until the offset is noted.
//
// A renewal by the Go plugin, with the same value under another lease, is no change. Scheduler's thread only.
#pragma once

#include <unordered_map>

#include "naming/context.h"
#include "records/record_store.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"
#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::naming {

class Generation {
 public:
  // A name's key as of one moment.
  struct Member {
    int64_t create_revision = 0;
    uint64_t value = 0;  // a hash
    bool operator==(const Member&) const = default;
  };
  using Members = std::unordered_map<int64_t, Member>;  // by ID
  static Member memberOf(const store::KeyValue& kv);

  // `own_id`: of the name that this node holds; 0: none. `may_note`: whether it may write. `on_change`: of the generation
  // that `records` has. All outlive the object.
  Generation(Context& context, slots::NamePattern pattern, records::RecordStore& records,
             std::function<int64_t()> own_id, bool may_note, std::function<void()> on_change);

  // Notes and reads the key; until the protocol stops.
  runtime::Task<void> keep();

  void stop() { changed_.set(); }
  bool isKnown() const { return is_loaded_; }

  // The generation of the roster with exactly these members; none: the table has others at the moment, or it is not known.
  std::optional<int64_t> of(const Members& members) const;

  // What was said before was of another store: no number is lower.
  void goOnFrom(int64_t generation);

  // --- mirror: of what comes into the table, in its order ---
  void put(const store::KeyValue& kv, bool by_node);
  void remove(std::string_view name, int64_t revision);
  // `revisions_restarted`: those of before say nothing about this store.
  void beginSnapshot(bool revisions_restarted);
  // A name that was not in the snapshot at this revision.
  void vanished(std::string_view name, int64_t revision);
  void endSnapshot();
  // A batch of the watch has been put.
  void endBatch();

 private:
  struct Entry : Member {
    int64_t shown = 0;     // the revision of its last change that the key shows
    bool by_node = false;  // of this program
  };
  enum class Reads { kNone, kFirst, kSecond };  // that are to be made

  int64_t generation() const { return newest_ + offset_; }
  void raise(int64_t revision) { newest_ = std::max(newest_, revision); }
  void publish();
  bool isNoted() const;
  // How many nodes of this program have a lower ID than this one, which is how many may note something before it does; none:
  // as many as may note anything.
  std::optional<size_t> place() const;
  runtime::Task<void> read();
  runtime::Task<void> note();
  void learn(const store::RangeResult& found);
  void settleVanished();
  void catchUp();

  Context& context_;
  const slots::NamePattern pattern_;
  const std::string key_;
  records::RecordStore& records_;
  const std::function<int64_t()> own_id_;
  const bool may_note_;
  const std::function<void()> on_change_;
  runtime::Event changed_;

  std::unordered_map<int64_t, Entry> members_;
  int64_t newest_ = 0;  // revision of the last change that is known
  int64_t offset_ = 0;
  bool is_loaded_ = false;  // a snapshot is complete, and the key was read since
  uint64_t restarts_ = 0;   // of revisions
  Reads reads_ = Reads::kNone;
  BootClock::time_point read_at_;  // the next one
  std::chrono::nanoseconds between_reads_{0};
  // Of a snapshot, where names were missing: they went before that. It is taken for the last change unless something shows
  // a later one than was known, by the second read. 0: none.
  int64_t vanished_at_ = 0;
  int64_t newest_before_ = 0;  // then

  // As the key says it.
  int64_t key_revision_ = 0;  // 0: there is none
  int64_t noted_revision_ = 0;
  int64_t noted_offset_ = 0;
};

}  // namespace idetcd::naming
