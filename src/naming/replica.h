// Turns etcd's keys into records: judges every foreign key and value alone, and publishes, changes or withdraws one
// record for each. The mirror (mirror.h) brings the keys; there is no I/O here. Scheduler's thread only.
//
// A key whose new value is no record loses the record it had: the key no longer says where the node is, and an address
// that is no longer confirmed is worse than none. The same holds when the value is found invalid by a snapshot.
#pragma once

#include <unordered_map>

#include "base/clock.h"
#include "base/log.h"
#include "naming/counters.h"
#include "naming/generation.h"
#include "naming/own_key_observer.h"
#include "naming/shared_address.h"
#include "records/record_store.h"
#include "store/store.h"

namespace idetcd::naming {

class Replica {
 public:
  struct Options {
    size_t max_names = 10'000'000;            // some 3 GB; what comes beyond is refused, whatever strangers write
    SharedAddress* shared_address = nullptr;  // may be null: an observer has no address to share
    Generation* generation = nullptr;         // learns what comes into the table; may be null
  };

  Replica(records::RecordStore& store, OwnKeyObserver& own_key, Counters& counters, const MachineClock& clock,
          Logger log, Options options)
      : store_(store), own_key_(own_key), counters_(counters), clock_(clock), log_(std::move(log)), options_(options) {}

  // How the revisions of a snapshot compare with those of what is in the table.
  enum class History {
    kSame,
    kOther,    // not at all: the store is another one, or was restored
    kUnknown,  // the table holds what a file said, and nothing else
  };

  // What one watch response says, in its order. May come in the middle of a snapshot. What a snapshot has shown already
  // is passed over: of a key that had gone by then, or was no record any more, the table knows no revision to compare.
  void apply(const std::vector<store::WatchEvent>& events);

  // A snapshot at one revision: every key of the watched range goes through addToSnapshot() between begin and end.
  // To begin another one abandons the first, and nothing is withdrawn before endSnapshot().
  void beginSnapshot(History history);
  void addToSnapshot(const std::vector<store::KeyValue>& page);
  // The same for keys that were read without their values. Returns those whose values are needed, since the table holds
  // another revision of them or nothing; these are to be given to addToSnapshot() too. One that is not is gone by now, and
  // endSnapshot() withdraws it.
  std::vector<store::KeyValue> addKeysToSnapshot(std::vector<store::KeyValue>&& page);
  // Whether the value of such a key is needed still: the watch goes on meanwhile, and this node may claim another name.
  // False: it need not be given to addToSnapshot() any more.
  bool needs(const store::KeyValue& kv);
  struct Difference {
    size_t added_or_changed = 0;
    size_t removed = 0;
    std::vector<std::string> names;  // some of them
    // What was in the table cannot have come before this snapshot: newer keys than it has, though no newer than itself,
    // or the same with another content. The store was restored from a backup and has gone on since; a new snapshot, as
    // kOther, has to replace everything.
    bool other_history = false;
    // A name that the watch has put meanwhile, at a revision before this one, is not in the snapshot: it has gone
    // again, and nothing has shown that yet. Not all up to this revision is in the table.
    bool lacks_changes = false;
    size_t rejected = 0;       // keys that are no records
    std::string why_rejected;  // what is wrong with the first of these
    size_t total() const { return added_or_changed + removed; }
  };
  Difference endSnapshot(int64_t revision);
  // The snapshot failed: what was added stays, nothing is withdrawn.
  void abandonSnapshot();

  size_t size() const { return store_.size(); }
  // The name with the highest revision, as far as the watch and the last snapshot have shown it; it may have gone since.
  int64_t newestName() const { return newest_name_.first; }
  const std::string& newestKey() const { return newest_name_.second; }
  // Whether the table has this key so; what is no name, always. An empty value is not compared: keys were read. Nor is any
  // while a snapshot is added.
  bool agrees(const store::KeyValue& kv);
  // That was seen in the present store.
  int64_t newestRevision() const { return own_key_.newestRevision(); }
  // Counts what was added, changed and removed, by the watch or by snapshots.
  uint64_t changes() const { return changes_; }

 private:
  // Bounds on what strangers can make us remember and write.
  static constexpr size_t kMaxRememberedRejections = 10'000;
  static constexpr size_t kMaxNamesInLog = 10;
  static constexpr int kMaxRejectionsInLog = 100;  // within kRejectionInterval
  static constexpr std::chrono::seconds kRejectionInterval{60};

  enum class EventEffect { kChanged, kUnchanged, kOlder, kContradiction, kRejected, kForeign };
  EventEffect put(const store::KeyValue& kv);
  EventEffect publish(const store::KeyValue& kv);
  bool remove(std::string_view key, int64_t mod_revision);
  bool lacks(const store::KeyValue& kv);
  void compare(const store::KeyValue& kv, EventEffect outcome);
  void withdrawUnread(int64_t snapshot);
  bool hasRoomFor(const dns::Name& name);
  void warnOfLimit(const store::KeyValue& kv, Rejection rejection);
  void reject(const store::KeyValue& kv, Rejection rejection, std::string_view why);
  void logRejection(const store::KeyValue& kv, std::string_view why);
  void noteMassDeletion(size_t removed, size_t before);

  records::RecordStore& store_;
  OwnKeyObserver& own_key_;
  Counters& counters_;
  const MachineClock& clock_;
  const Logger log_;
  const Options options_;
  uint64_t changes_ = 0;
  int64_t complete_to_ = 0;  // the last snapshot's revision: the table holds every change up to it
  using Newest = std::pair<int64_t, std::string>;  // the revision, and the key
  Newest newest_name_;
  Newest newest_in_snapshot_;
  bool full_logged_ = false;
  bool long_key_logged_ = false;
  bool large_value_logged_ = false;

  bool in_snapshot_ = false;
  bool adding_to_snapshot_ = false;  // what is no record is summed up in one line at its end
  Difference difference_;
  // The oldest revision in the table that was newer than what the snapshot shows. Above the snapshot's own revision all
  // is well: the watch has been faster.
  int64_t oldest_newer_ = 0;
  // What the watch withdrew while a snapshot of an older revision is read, which must not bring it back: key ->
  // revision.
  std::unordered_map<std::string, int64_t> withdrawn_;
  // What the watch put meanwhile and the snapshot has not shown yet: key -> revision.
  std::unordered_map<std::string, int64_t> put_meanwhile_;
  // Whose values addKeysToSnapshot() wanted, and nothing has shown since: key -> revision.
  std::unordered_map<std::string, int64_t> unread_;
  std::unordered_map<std::string, int64_t> rejected_;  // key -> the mod_revision that was logged
  BootClock::time_point rejections_since_{};
  int rejections_logged_ = 0;
  size_t rejections_unlogged_ = 0;
  bool paths_logged_ = false;
};

}  // namespace idetcd::naming
