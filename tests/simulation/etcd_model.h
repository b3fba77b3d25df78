// What etcd 3.4 answers, as a state machine: no I/O, no threads, no clock of its own. The same requests at the same
// times give the same answers, revisions and events. etcd_model_test.cc holds it to a real etcd.
//
// The state is that of a quorum. A member that has applied less is described by the revision that it has applied, which
// reads and watches take as `applied`; a revision beyond the state's counts as the state's.
//
// Modelled: revisions, Range, Txn, compaction (which reaches all members at once), leases with the rules of the primary
// lessor, watches, the NOSPACE alarm, backups. Left out: authentication, nested transactions, values above 1.5 MiB.
// Errors carry etcd's own texts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "store/store.h"

namespace idetcd::simulation {

using store::Compare;
using store::DeleteOp;
using store::KeyRange;
using store::KeyValue;
using store::Op;
using store::PutOp;
using store::RangeOp;
using store::RangeOptions;
using store::RangeResult;
using store::StoreError;
using store::StoreResult;
using store::TxnRequest;
using store::TxnResult;
using store::WatchBatch;
using store::WatchEvent;

// Whether the range has the key, by the API's conventions (KeyRange).
bool contains(const KeyRange& range, std::string_view key);

class EtcdModel {
 public:
  using Time = BootClock::time_point;

  struct Options {
    uint64_t cluster_id = 1;
    std::chrono::seconds min_ttl{2};                   // three halves of the election timeout, rounded up
    std::chrono::milliseconds election_timeout{1000};  // by which a new leader extends each lease
  };

  EtcdModel() : EtcdModel(Options{}) {}
  explicit EtcdModel(Options options) : options_(options) {}

  const Options& options() const { return options_; }
  uint64_t clusterId() const { return options_.cluster_id; }
  int64_t revision() const { return revision_; }
  int64_t compactedRevision() const { return compacted_; }

  // --- keys ---
  // `wants_value`: in place of other values there is kNoValue; empty: of all.
  static constexpr std::string_view kNoValue = "{}";
  using WantsValue = std::function<bool(const KeyValue&)>;
  StoreResult<RangeResult> range(const KeyRange& range, const RangeOptions& options, int64_t applied,
                                 const WantsValue& wants_value = {}) const;
  StoreResult<RangeResult> range(const KeyRange& range, const RangeOptions& options) const {
    return this->range(range, options, revision_);
  }
  StoreResult<TxnResult> txn(const TxnRequest& request);
  // At the revision that a member has applied. REQUIRES: the request writes nothing.
  StoreResult<TxnResult> readTxn(const TxnRequest& request, int64_t applied) const;
  StoreResult<void> compact(int64_t revision);
  // While it is on, a request that may store more is refused. The first `last_ones` of them are done all the same: etcd
  // let them pass before it saw what they would lead to.
  void setNoSpace(bool on, size_t last_ones = 0) {
    no_space_ = on;
    last_ones_ = last_ones;
  }

  // --- leases; `now` never goes back ---
  // REQUIRES: id is not 0, which would let etcd draw one.
  StoreResult<store::Lease> leaseGrant(int64_t id, std::chrono::seconds ttl, Time now);
  // None: it has ended and is not revoked yet. etcd answers when it is, with kLeaseNotFound.
  std::optional<StoreResult<store::Lease>> leaseKeepAlive(int64_t id, Time now);
  // Whole seconds, rounded down.
  StoreResult<std::chrono::seconds> leaseTimeToLive(int64_t id, Time now) const;
  StoreResult<void> leaseRevoke(int64_t id);
  // The leader looks: each lease that has ended goes, with all its keys in one revision. The number of leases.
  size_t revokeExpired(Time now);
  // When the first lease ends. None: there is no lease.
  std::optional<Time> nextExpiry() const;
  // Another member leads, or the same one after a restart: every lease gets its full time again, and the election
  // timeout.
  void changeLeader(Time now);
  bool hasLease(int64_t id) const { return leases_.contains(id); }
  std::map<int64_t, Time> leaseEnds() const;  // of all leases
  // REQUIRES: hasLease(id).
  std::chrono::seconds leaseTtl(int64_t id) const { return leases_.at(id).ttl; }

  // --- backups ---
  // A copy of the model is a backup. What a cluster that was made of it has: the same keys and leases.
  static EtcdModel restored(const EtcdModel& backup, uint64_t cluster_id, Time now);

  // --- history ---
  // Every change since the store was made, in order; compaction does not shorten it.
  const std::vector<WatchEvent>& history() const { return history_; }
  // The first change of this revision or a later one, as an index into history().
  size_t historyFrom(int64_t revision) const;

 private:
  struct LeaseState {
    std::chrono::seconds ttl{0};
    Time end;
    std::set<std::string> keys;
  };

  using Changes = std::vector<size_t>;  // as indexes into history_

  const KeyValue* find(std::string_view key, int64_t revision = INT64_MAX) const;  // null: it is not there
  const KeyValue* findAt(const Changes& changes, int64_t revision) const;
  RangeResult read(const KeyRange& range, const RangeOptions& options, int64_t at,
                   const WantsValue& wants_value = {}) const;
  bool hasChangedSince(const KeyRange& range, int64_t revision) const;
  std::span<const size_t> presentIn(const KeyRange& range) const;
  std::vector<const KeyValue*> presentAt(const KeyRange& range, int64_t revision) const;
  std::optional<StoreError> unreadable(int64_t wanted, int64_t applied) const;
  enum class Space { kEnough, kLast, kNone };
  Space takeSpace();  // of a request that may store more
  std::optional<StoreError> refusal(const std::vector<Op>& branch) const;
  bool holds(const Compare& compare, int64_t revision = INT64_MAX) const;
  void put(const PutOp& op, int64_t revision);
  int64_t remove(const KeyRange& range, int64_t revision);
  void detach(const KeyValue& kv);
  void end(std::map<int64_t, LeaseState>::iterator lease);
  void append(WatchEvent event);
  void notePresence(const WatchEvent& event);
  size_t presentBefore(std::string_view key) const;

  Options options_;
  int64_t revision_ = 1;
  int64_t compacted_ = 0;
  bool no_space_ = false;
  size_t last_ones_ = 0;  // that are refused, and done
  std::vector<WatchEvent> history_;
  std::map<std::string, Changes, std::less<>> keys_;
  Changes present_;  // the last ones of the keys that are there now, in the keys' order
  std::map<int64_t, LeaseState> leases_;
};

// One watch of some ranges, as store::WatchStream shows it. It belongs to a member, which is known by the revision that
// it has applied.
class WatchModel {
 public:
  // `model` outlives the watch. `from_applied`: a watch from a future revision begins too early, with all that the
  // member applies from now on (https://github.com/etcd-io/etcd/issues/20221).
  WatchModel(const EtcdModel& model, std::vector<store::WatchRange> ranges, int64_t applied, bool from_applied = false);

  int64_t createdRevision() const { return created_revision_; }
  uint64_t clusterId() const { return cluster_id_; }

  // What has come since the last call: a batch for each range with events, and at most `max_events` of them in each (0:
  // no limit), so that a batch may end within a revision, as that of a response in fragments may. kCompacted: a range
  // begins before what is kept; the watch has ended.
  StoreResult<std::vector<WatchBatch>> collect(int64_t applied, size_t max_events = 0);
  // collect() has changes to look at.
  bool hasNews(int64_t applied) const;
  // The answer to a progress request: etcd 3.4 gives it at once, ahead of events that are still to be collected.
  WatchBatch progress(int64_t applied) const;

 private:
  struct Part {
    KeyRange range;
    int64_t start_revision = 0;
    int64_t resume_revision = 0;
    size_t next = 0;  // of the model's history
  };

  const EtcdModel& model_;
  const int64_t created_revision_;
  const uint64_t cluster_id_;
  std::vector<Part> parts_;
  bool compacted_ = false;
};

}  // namespace idetcd::simulation
