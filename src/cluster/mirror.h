// Brings every name in etcd into the record store, and keeps it there: a snapshot at one revision R, a watch from R +
// 1, resumed at the last event + 1 after any break, and a comparison with etcd, soon after each new watch and at long
// intervals.
//
// The comparison measures against a quorum's revision, never against what the watch says of itself. It reads keys,
// which carry their revisions, and then the values of those that differ. What still differs some seconds later the
// watch has lost: it is repaired, counted and logged, and the watch is not trusted any more: another is opened, at
// another member. What etcd 3.4.23 was seen to lose: see etcd::WatchStream.
//
// Invariants:
//   - The table is changed only by what etcd has said. No failure, however long, empties it.
//   - A snapshot that replaces another is a difference: no moment with an empty or half table.
//   - Memory is bounded by one page of a snapshot and one watch response, besides the table itself and the names that
//     vanish while a snapshot is read.
//   - What is applied is never older than what it replaces, unless the store itself went back (restored backup).
// Completion thread only. After stop() the record store is not touched any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "cluster/confirmation.h"
#include "cluster/context.h"
#include "cluster/keyspace.h"
#include "cluster/own_key.h"
#include "cluster/replica.h"
#include "etcd/client.h"
#include "etcd/task.h"
#include "records/record_store.h"

namespace idetcd::cluster {

class Mirror {
 public:
  struct Options {
    std::chrono::nanoseconds stale_after{std::chrono::seconds(20)};  // the lease time
    // Mean, in a small cluster: all nodes together read the square of their number, so it is stretched by
    // a 500th of that, and if a comparison takes long.
    std::chrono::nanoseconds repair_interval{std::chrono::seconds(60)};
    std::chrono::nanoseconds repair_patience{std::chrono::seconds(2)};  // for what is on its way from etcd
    int64_t limit = 1;                                                  // how many nodes the cluster may have
    int64_t page_size = 0;                               // of a snapshot, in keys; 0: by the size of the range
    std::vector<etcd::KeyRange> ranges{watchedRange()};  // in order, without an overlap (watched_ranges.h)
    size_t max_names = 10'000'000;
    SharedAddress* shared_address = nullptr;  // see Replica::Options
    std::function<void()> on_freshness = {};  // the store's freshness has changed or been prolonged; may be empty
  };

  Mirror(Context& context, Options options, records::RecordStore& store, OwnKey& own_key, Confirmation& confirmation);

  // The three loops; each until the Member stops.
  etcd::Task<void> run();  // snapshot, watch, again
  etcd::Task<void> repairRegularly();
  etcd::Task<void> watchFreshness();  // kStale when the present was not confirmed for too long

  // The store holds what a file said (saved_names.h). REQUIRES: before run().
  void restored() { restored_ = true; }
  // Rises with every change of the store that etcd has brought.
  uint64_t changes() const { return replica_.changes(); }

 private:
  enum class Next { kWatchAgain, kSnapshot };
  // Of the store at present.
  struct Present {
    int64_t revision = 0;
    uint64_t cluster_id = 0;
  };

  etcd::Task<bool> load();
  etcd::Task<etcd::EtcdResult<int64_t>> readSnapshot();
  etcd::Task<etcd::EtcdResult<int64_t>> readPages(Present at, uint64_t generation);
  etcd::Task<etcd::EtcdResult<std::vector<etcd::KeyValue>>> readKeys(Present& at, uint64_t generation);
  etcd::Task<etcd::EtcdResult<bool>> readValues(std::vector<etcd::KeyValue> wanted, uint64_t generation,
                                                int64_t revision);
  etcd::Task<etcd::EtcdResult<bool>> readDifferences(Present& at, uint64_t generation,
                                                     std::chrono::nanoseconds patience);
  etcd::Task<void> follow();
  etcd::Task<etcd::EtcdResult<Next>> prepareWatch();
  etcd::Task<etcd::EtcdResult<etcd::WatchStream>> openWatch();
  etcd::Task<void> followClient(etcd::WatchStream& stream);
  etcd::Task<etcd::EtcdError> consume(etcd::WatchStream& stream);
  etcd::Task<bool> repair();
  void repairWithin(std::chrono::nanoseconds mean);
  double stretch() const;
  int64_t resumeFloor() const;
  void passed(int64_t revision);
  etcd::Task<etcd::EtcdResult<Present>> present();
  bool isOtherStore(const Present& present) const;

  bool ended(uint64_t generation) const { return generation != generation_ || context_.lifetime.stopping(); }
  void confirmed(BootClock::time_point as_of);
  void learn(const etcd::WatchBatch& batch);
  void logLoaded(const Replica::Difference& difference, int64_t revision, BootClock::time_point started);

  Context& context_;
  const Options options_;
  records::RecordStore& store_;
  Replica replica_;
  Confirmation& confirmation_;

  // Of each range: all events up to this revision are in the table, as far as the watch can be trusted. What it tells
  // of progress may be ahead of events in flight (some etcd 3.4 and 3.5), so no watch is resumed there (see
  // WatchBatch).
  std::vector<int64_t> resume_;
  uint64_t cluster_id_ = 0;  // whose revisions these are; 0: none yet
  int64_t highest_ = 0;  // that the store ever was said to have; less than this from a quorum means that it went back

  bool loaded_ = false;
  bool restored_ = false;       // and nothing from etcd yet
  bool other_history_ = false;  // a comparison has shown that the store was restored: everything has to be read anew
  bool caught_up_ = false;      // the watch shows the present
  int64_t catch_up_to_ = 0;
  bool fresh_ = false;                 // as it was told
  BootClock::time_point current_at_;   // as of when the table is known to be the present
  BootClock::time_point snapshot_at_;  // when the last snapshot was begun
  uint64_t generation_ = 0;            // of snapshots: a new one ends the one under way
  std::chrono::nanoseconds last_repair_took_{0};
  BootClock::time_point next_repair_ = BootClock::time_point::max();
  BootClock::time_point next_move_;  // a watch that cannot follow the client at once tries again after a while
  bool after_break_ = false;         // since the last comparison: the store may be another, and shows it in values only
  bool suspect_ = false;             // a comparison has shown that the watch loses changes
  bool must_reload_ = false;         // and so many that all is to be read
};

}  // namespace idetcd::cluster
