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
// not, and where no node holds a name, any. A node reads the key when it has read the names, once more some seconds after
// that, and with each comparison of the names. Until the first of these reads the generation is not known.
//
// Where the store was set back, a node that notes and has seen a higher generation sets the offset, which is added to
// revisions; any that has seen one, if none of these does. So the generation goes on rising if one of those nodes lives. It
// stands still until the offset is noted.
//
// A key that is no such note, by whatever hand, is as none, and takes nothing back that is known.
//
// A renewal by the Go plugin, with the same value under another lease, is no change. The count is in generation_count.h; here
// is the key, and the number that is told. Scheduler's thread only.
#pragma once

#include "naming/context.h"
#include "naming/generation_count.h"
#include "records/record_store.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"

namespace idetcd::naming {

class Generation {
 public:
  using Members = GenerationCount::Members;

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

  // That of a claim of this node at this revision, which the watch may not have shown yet.
  int64_t ofClaim(int64_t revision) const { return std::max(records_.generation(), count_.generationOf(revision)); }
  // What was said before was of another store: no number is lower.
  void goOnFrom(int64_t generation);
  // The key is read anew: no name shows an offset that another node has noted since.
  void readAgain();

  // --- mirror: see GenerationCount ---
  void put(const store::KeyValue& kv, bool by_node) { count_.put(kv, by_node); }
  void remove(std::string_view name, int64_t revision) { count_.remove(name, revision); }
  void beginSnapshot(bool revisions_restarted);
  void vanished(std::string_view name, int64_t revision) { count_.vanished(name, revision); }
  void endSnapshot();
  // A batch of the watch has been put.
  void endBatch();

 private:
  enum class Reads { kNone, kFirst, kSecond };  // that are to be made

  void publish();
  // How many nodes may note something before this one does; none: as many as may note anything.
  std::optional<size_t> place() const;
  bool isBehind() const { return count_.generation() < records_.generation(); }
  runtime::Task<void> read();
  runtime::Task<void> note();
  void learn(const store::RangeResult& found);
  void catchUp();

  Context& context_;
  const std::string key_;
  records::RecordStore& records_;  // has the number that is told, which never falls
  const std::function<int64_t()> own_id_;
  const bool may_note_;
  const std::function<void()> on_change_;
  runtime::Event changed_;
  GenerationCount count_;
  bool is_loaded_ = false;  // a snapshot is complete, and the key was read since

  // The key.
  GenerationCount::Note noted_;
  int64_t key_revision_ = 0;  // 0: there is none
  uint64_t restarts_ = 0;     // of revisions
  Reads reads_ = Reads::kNone;
  BootClock::time_point read_at_;  // the next one
  std::chrono::nanoseconds between_reads_{0};
};

}  // namespace idetcd::naming
