// Brings every name in etcd into the record store, and keeps it there: a snapshot at a revision R, a watch from R + 1,
// which is opened first, so that compaction takes nothing from between, resumed at the last event + 1 after any break,
// and a comparison with etcd, soon after each new watch and at long intervals.
//
// The comparison measures against a quorum's revision, never against what the watch says of itself. As a rule it asks how
// many keys there are, and for the newest of them. Where these differ, and now and then, it reads all keys, which carry
// their revisions, and then the values of those that differ. What still differs some seconds later the
// watch has lost: it is repaired, counted and logged, and the watch is not trusted any more: another is opened, at
// another member. What etcd 3.4.23 was seen to lose: see store::WatchStream.
//
// Invariants:
//   - The table is changed only by what etcd has said. No failure, however long, empties it.
//   - A snapshot that replaces another is a difference: no moment with an empty or half table.
//   - Memory is bounded by one page of a snapshot and one watch response, besides the table itself and the names that
//     vanish while a snapshot is read.
//   - What is applied is never older than what it replaces, unless the store itself went back (restored backup).
// Scheduler's thread only. After stop() the record store is not touched any more.
#pragma once

#include "base/clock.h"
#include "naming/backoff.h"
#include "naming/confirmation.h"
#include "naming/context.h"
#include "naming/keyspace.h"
#include "naming/own_key_observer.h"
#include "naming/record_source.h"
#include "naming/replica.h"
#include "naming/revision_times.h"
#include "records/record_store.h"
#include "runtime/task.h"
#include "store/store.h"

namespace idetcd::naming {

class Mirror final : public RecordSource {
 public:
  struct Options {
    std::chrono::nanoseconds stale_after{std::chrono::seconds(20)};  // the lease time
    // Mean, in a small cluster: all nodes together read the square of their number, so it is stretched by a 500th of
    // that, and if a comparison takes long.
    std::chrono::nanoseconds reconcile_interval{std::chrono::seconds(60)};
    std::chrono::nanoseconds settle_time{std::chrono::seconds(2)};  // for what is on its way from etcd
    int64_t limit = 1;                                              // how many nodes the cluster may have
    // As many nodes may start together and read the names at once; of more, each reads them once its claim is settled
    // (OwnKeyObserver), and after a time that grows with their number if others claim too. None: there is no claim.
    std::optional<int64_t> most_at_once = {};
    int64_t page_size = 0;                               // of a snapshot, in keys; 0: by the size of the range
    std::vector<store::KeyRange> ranges{watchedRange()};  // in order, without an overlap (watched_ranges.h)
    size_t max_names = 10'000'000;
    RevisionTimes* times = nullptr;           // learns the revisions; may be null
    SharedAddress* shared_address = nullptr;  // see Replica::Options
    Generation* generation = nullptr;         // see Replica::Options
    std::function<void()> on_lost = {};       // the watch has lost changes; may be empty
    std::function<void()> on_freshness = {};  // the store's freshness has changed or been prolonged; may be empty
  };

  // `names`: the snapshots and the watch are of it, all else is of the context's store.
  Mirror(Context& context, Options options, store::Source& names, records::RecordStore& store, OwnKeyObserver& own_key,
         Confirmation& confirmation);

  // The three loops; each until the protocol stops.
  runtime::Task<void> run();  // snapshot, watch, again
  runtime::Task<void> reconcileRegularly();
  runtime::Task<void> watchFreshness();  // kStale when the present was not confirmed for too long

  void restored() override {
    assert(table_ == Table::kEmpty && generation_ == 0);
    table_ = Table::kFromFile;
  }
  uint64_t changes() const override { return replica_.changes(); }

 private:
  enum class Table { kEmpty, kFromFile, kLoaded };  // where what is in it comes from
  enum class Watch {
    kClosed,    // none was open yet
    kOpen,      // compared, or the first one
    kBroken,    // none is open; the store may be another when one is again, and show it in values only
    kReopened,  // after a break, and not compared since
  };
  // What comparisons have shown, from the best to the worst.
  enum class Trust {
    kWhole,
    kLosesChanges,  // the watch does: another is to be opened
    kReload,        // and so many that all is to be read
    kOtherHistory,  // the store was restored: everything has to be read anew
  };
  // Of the store at present.
  struct StoreState {
    int64_t revision = 0;
    uint64_t cluster_id = 0;
  };

  runtime::Task<bool> load();
  runtime::Task<void> letOthersClaim();
  runtime::Task<store::StoreResult<int64_t>> readSnapshot();
  void logOtherStore(const StoreState& now, bool was_restored) const;
  runtime::Task<store::StoreResult<void>> readAll(StoreState at, uint64_t generation, bool is_other);
  void giveBackPages() const;
  runtime::Task<store::StoreResult<int64_t>> readPages(StoreState at, uint64_t generation);
  runtime::Task<store::StoreResult<std::vector<store::KeyValue>>> readKeys(StoreState& at, uint64_t generation);
  runtime::Task<store::StoreResult<bool>> readValues(std::vector<store::KeyValue> wanted, uint64_t generation,
                                                     std::optional<int64_t> revision);
  runtime::Task<store::StoreResult<bool>> readDifferences(StoreState& at, uint64_t generation,
                                                          std::chrono::nanoseconds settle_time);
  runtime::Task<void> follow();
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> openOrResume();
  bool needsSnapshot(const store::StoreError& error) const;
  runtime::Task<store::StoreResult<bool>> checkHistory();  // false: it is another store
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> openWatch(std::vector<int64_t> resume,
                                                                                   uint64_t cluster_id);
  void beginWatch();
  void doubtWatch();
  std::chrono::nanoseconds silence() const;
  std::chrono::nanoseconds patience() const;
  runtime::Task<void> followClient(std::unique_ptr<store::WatchStream>& stream);
  runtime::Task<store::StoreError> consume(std::unique_ptr<store::WatchStream> stream);
  runtime::Task<void> claimAnswered(const std::vector<store::WatchEvent>& events);
  runtime::Task<bool> reconcile();
  runtime::Task<bool> agreesByNewest();
  void reconcileWithin(std::chrono::nanoseconds mean);
  void planWholeComparison();
  double nodes() const;  // of the cluster, as far as they are known
  double stretch() const;
  std::chrono::nanoseconds pauseAfter(const store::StoreError& error, Backoff& backoff);
  int64_t resumeFloor() const;
  void passed(int64_t revision);
  runtime::Task<store::StoreResult<StoreState>> readState();
  bool isOtherStore(const StoreState& state) const;

  // A comparison may begin: nothing is being read, and what differs is the watch's fault.
  bool isWatching() const { return watch_ == Watch::kOpen || watch_ == Watch::kReopened; }
  bool isAfterBreak() const { return watch_ == Watch::kBroken || watch_ == Watch::kReopened; }
  void distrust(Trust trust) { trust_ = std::max(trust_, trust); }
  bool ended(uint64_t generation) const { return generation != generation_ || context_.lifetime.stopping(); }
  double secondsSince(BootClock::time_point start) const;
  void confirmed(BootClock::time_point as_of);
  void learn(const store::WatchBatch& batch);
  void noteRevision(int64_t revision) const;
  void logLoaded(const Replica::Difference& difference, int64_t revision, BootClock::time_point started);

  Context& context_;
  const Options options_;
  store::Source& names_;
  records::RecordStore& store_;
  OwnKeyObserver& own_key_;
  runtime::Event claim_answered_;
  runtime::Event claim_settled_;
  Replica replica_;
  Confirmation& confirmation_;

  // Of each range: all events up to this revision are in the table, as far as the watch can be trusted. What it reports
  // as progress may be ahead of events in flight (some etcd 3.4 and 3.5), so no watch is resumed there (see
  // WatchBatch).
  std::vector<int64_t> resume_;
  store::WatchStream* open_ = nullptr;  // that is read; null: none
  std::unique_ptr<store::WatchStream> first_watch_;  // that was opened before the snapshot was read; null: none waits
  uint64_t cluster_id_ = 0;  // whose revisions these are; 0: none yet
  int64_t highest_ = 0;  // that the store ever was said to have; less than this from a quorum means that it went back

  bool opens_watch_first_ = true;
  bool lets_others_claim_;  // before the first snapshot
  bool was_reset_ = false;  // the connection of the watch that has just ended
  Table table_ = Table::kEmpty;
  Watch watch_ = Watch::kClosed;
  Trust trust_ = Trust::kWhole;
  BootClock::time_point current_at_;   // as of when the table is known to be the present
  BootClock::time_point snapshot_at_;  // when the last snapshot was begun
  uint64_t generation_ = 0;            // of snapshots: a new one ends the one under way
  uint64_t watches_opened_ = 0;        // what was read before the last one says nothing of what it shows
  std::chrono::nanoseconds last_comparison_took_{0};
  BootClock::time_point next_comparison_ = BootClock::time_point::max();
  BootClock::time_point next_whole_comparison_;
  int64_t surplus_ = 0;     // of keys in the store, but beats, above names in the table, when it was last asked for
  int64_t other_keys_ = 0;  // the same, when a comparison of all keys has found no difference: what are no names
  BootClock::time_point next_move_;  // a watch that cannot follow the client at once tries again after a while
};

}  // namespace idetcd::naming
