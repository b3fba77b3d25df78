// Keeps a ServiceSet as etcd has it: all keys below a path are read at one revision, then a watch says what changes. A watch
// that breaks is opened anew where it was; all is read again, while the last table goes on being answered, where that is
// not enough: after a compaction, when the store is another one or went back, and when the watch was away for so long
// that it may have been restored.
//
// A key whose value is no service costs itself alone: it is left out, counted, and logged. So is a service beyond the bounds
// of number and memory, until all is read again: that happens once a tenth of the room is free. Scheduler's thread only.
#pragma once

#include <unordered_map>

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "naming/backoff.h"
#include "naming/context.h"
#include "skydns/service_table.h"
#include "store/store.h"

namespace idetcd::skydns {

struct FollowerCounters : metrics::Group {
  using Group::Group;

  metrics::Gauge services{*this, "idetcd_skydns_services", "Services that are answered for."};
  metrics::Counter reads{*this, "idetcd_skydns_reads_total", "Times that all services were read."};
  metrics::Counter breaks{*this, "idetcd_skydns_watch_breaks_total", "Times that the watch of the services broke."};
  metrics::Counter changes{*this, "idetcd_skydns_changes_total", "Changes of services that the watch has shown."};
  metrics::Counter left_out{*this, "idetcd_skydns_left_out_total", "Services that there was no room for."};
  metrics::Counter rejected{*this, "idetcd_skydns_rejected_total", "Keys that were left out, as they are no services."};
};

class Follower {
 public:
  struct Options {
    std::string path = "/skydns";  // begins with a slash and does not end with one; empty: every key that begins with one
    std::chrono::nanoseconds stale_after{std::chrono::seconds(20)};  // without a word of etcd
    // Bounds of what a lease lets clients keep, in seconds.
    uint32_t min_lease_ttl = 30;
    uint32_t max_lease_ttl = 86'400;
    // Bounds of what is kept; while all is read anew there are two tables.
    size_t most_services = 2'000'000;
    size_t most_bytes = size_t{1} << 30;  // of Service::bytes()
    int64_t page_size = 0;  // of reading, in keys; 0: by the size of the range
  };

  // REQUIRES: the scheduler, the store and `random` outlive this.
  Follower(runtime::Scheduler& scheduler, store::Store& store, RandomSource& random, std::shared_ptr<ServiceSet> set,
           Options options, const Logger& log, const metrics::Scope& scope);

  // Each task keeps `owner`, of which this is a part. Any thread; once.
  void start(const std::shared_ptr<void>& owner);
  void stop() {
    lifetime_.stop();
    has_new_leases_.set();
  }

 private:
  static constexpr int kMostLogged = 20;  // rejected keys, between two readings of all

  runtime::Task<void> run();
  runtime::Task<store::StoreResult<void>> load();
  runtime::Task<store::StoreError> follow();
  runtime::Task<store::StoreResult<store::RangeResult>> readState();
  runtime::Task<void> learnLeases();
  runtime::Task<void> watchFreshness();

  store::KeyRange range() const { return store::KeyRange::prefix(options_.path + '/'); }
  void apply(const std::vector<store::WatchEvent>& events);
  ServicePtr read(const store::KeyValue& kv);
  bool admit(const Service& service);
  bool hasRoom() const;
  std::shared_ptr<const LeaseTtl> leaseTtl(int64_t lease);
  void publish(ServiceTable table);
  void confirmed();
  uint32_t serial() const;
  std::chrono::nanoseconds pauseAfter(const store::StoreError& error, naming::Backoff& backoff);

  runtime::Scheduler& scheduler_;
  store::Store& store_;
  const std::shared_ptr<ServiceSet> set_;
  const Options options_;
  const Logger log_;
  FollowerCounters counters_;
  const metrics::GaugeFunction fresh_;
  naming::Jitter jitter_;
  naming::Lifetime lifetime_;
  naming::ErrorLogThrottle trouble_;

  size_t services_ = 0;  // in the table, or in the one that is being read
  size_t bytes_ = 0;     // of these
  size_t left_out_ = 0;  // for want of room, since the last reading began
  bool is_loaded_ = false;  // the table was whole as of resume_; else all is to be read
  bool was_away_ = false;   // reading all again waits for a while: others are about to do so, too
  int64_t resume_ = 0;      // everything up to this revision is in the table
  uint64_t cluster_id_ = 0;
  BootClock::time_point confirmed_at_;  // as of when the table is known to be the present
  BootClock::time_point watched_at_;    // the last word of the watch, or the end of the reading before it
  bool was_stale_ = false;
  int rejections_logged_ = 0;

  std::unordered_map<int64_t, std::weak_ptr<LeaseTtl>> leases_;
  size_t most_leases_ = 1000;         // then those that are gone are forgotten
  std::deque<int64_t> new_leases_;    // whose TTL is not known yet
  runtime::Event has_new_leases_;
};

}  // namespace idetcd::skydns
