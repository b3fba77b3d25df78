// The keys of all names as they are in the store, and their last changes, for nodes that take both from this one
// instead of the store (relay.h): a Source that asks the store once for all who read it.
//
// Whoever reads it learns no less than from the store:
//   - a range has every change up to the revision that was asked for, or fails
//   - a watch has every change from its revision on, in the store's order, or ends: at a break of the watch that this
//     cache has, as behind it the store may be another; and when its reader is so late that what it lacks is not kept any
//     more (kCompacted)
//   - the answer to a progress request is the store's, asked for then
// A cache that cannot be sure to go on in the same history behind a break (the newest name is not at its revision) begins
// anew. Bounded in memory: by the names, and kMostKept. Scheduler's thread only.
#pragma once

#include <deque>
#include <map>

#include "base/clock.h"
#include "base/log.h"
#include "naming/backoff.h"
#include "runtime/scheduler.h"
#include "runtime/task.h"
#include "store/store.h"

namespace idetcd::naming {

class NameCache final : public store::Source, public std::enable_shared_from_this<NameCache> {
 public:
  static constexpr size_t kMostKept = size_t{16} << 20;  // bytes of changes
  // How long a reader waits for what the cache does not have yet.
  static constexpr std::chrono::nanoseconds kPatience{std::chrono::seconds(2)};

  // What is passed by reference outlives the cache, which is owned by a shared_ptr.
  NameCache(runtime::Scheduler& scheduler, store::Store& store, Jitter& jitter, std::vector<store::KeyRange> ranges,
            Logger log)
      : scheduler_(scheduler),
        store_(store),
        jitter_(jitter),
        ranges_(std::move(ranges)),
        log_(std::move(log)),
        stopped_(scheduler),
        news_(scheduler) {}

  // Until stop(). Keeps the cache alive.
  runtime::Task<void> run();
  // What the store's watch has lost, silently, only a quorum shows: asks it now and then. Until stop(), as run().
  runtime::Task<void> checkRegularly();
  void stop();

  bool isReady() const { return upstream_ != nullptr; }
  // The watch was found to lose changes: all is read anew, and readers end.
  void forget();

  // Names only, no paths; whole values; a thousand at most, so that many readers at once cost little. RangeResult::count is
  // that of all names where there are more. Revision 0: as they are here. kUnavailable: not in time.
  runtime::Task<store::StoreResult<store::RangeResult>> range(store::KeyRange range,
                                                              store::RangeOptions options) override;
  // Of the very ranges of the cache, in any order.
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> watch(
      std::vector<store::WatchRange> ranges) override;

 private:
  class Reader;
  struct Change {
    store::WatchBatch batch;
    size_t bytes = 0;
  };

  bool stopping() const { return stopped_.isSet() || scheduler_.stopping(); }
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> load();
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> resume();
  runtime::Task<store::StoreResult<bool>> isSameHistory();
  runtime::Task<store::StoreResult<std::unique_ptr<store::WatchStream>>> openUpstream(std::vector<int64_t> from,
                                                                                      uint64_t cluster_id);
  runtime::Task<store::StoreError> consume(store::WatchStream& stream);
  runtime::Task<void> checkNewest();
  runtime::Task<void> compareAll();
  bool agrees(const std::map<std::string, int64_t>& keys, int64_t revision) const;
  void take(store::WatchBatch batch);
  void put(store::KeyValue kv);
  void keep(store::WatchBatch batch);
  void tellReaders();
  void askProgress();
  int64_t delivered() const { return *std::ranges::min_element(resume_) - 1; }
  std::optional<size_t> indexOf(const store::KeyRange& range) const;
  template <typename Condition>
  runtime::Task<bool> waitUntil(Condition holds);

  runtime::Scheduler& scheduler_;
  store::Store& store_;
  Jitter& jitter_;
  const std::vector<store::KeyRange> ranges_;
  const Logger log_;
  runtime::Event stopped_;
  runtime::Event news_;  // set for a moment

  std::map<std::string, store::KeyValue, std::less<>> names_;
  std::pair<int64_t, std::string> newest_;  // of all puts of names: revision and key
  std::deque<Change> changes_;
  size_t change_bytes_ = 0;
  uint64_t first_change_ = 0;    // the number of changes_.front()
  std::vector<int64_t> oldest_;  // of each range: all changes from this revision on are in changes_
  std::vector<int64_t> resume_;  // of each range: see WatchBatch::resume_revision
  int64_t known_ = 0;            // the highest revision that the store has said
  uint64_t cluster_id_ = 0;
  store::WatchStream* upstream_ = nullptr;  // null: the present is not known
  uint64_t breaks_ = 0;
  BootClock::time_point next_progress_;
  bool is_loaded_ = false;
  bool is_behind_ = false;  // the watch lacks what is in the store
};

}  // namespace idetcd::naming
