// A store of keys with revisions, leases, transactions and watches: requests, results and what calls them. What has to
// do with names is written over this class. etcd/client is one implementation, tests/simulation has another.
//
// Every Task runs on one scheduler, and may be awaited there only. Failures are values; nothing throws.
//
// A store has one or more endpoints and speaks to one of them at a time. A call that fails because the endpoint is away
// (unavailable, no leader, time-out) makes the next call use the next endpoint. Calls that may be repeated safely
// (Range, LeaseGrant, LeaseKeepAlive, LeaseTimeToLive, LeaseRevoke, opening a watch) are tried once on every endpoint
// before they fail. A write is sent once: it goes on to the next endpoint only while it is certain that it was not sent
// (no connection), and its failure may be ambiguous: see StoreError::ambiguous().
#pragma once

#include <variant>

#include <tl/expected.hpp>

#include "base/clock.h"
#include "base/result.h"
#include "runtime/task.h"

namespace idetcd::store {

using runtime::Task;

struct StoreError : Error {
  StoreError() = default;
  StoreError(ErrorCode error_code, std::string text, bool was_sent = true)
      : Error{.message = std::move(text), .code = error_code}, sent(was_sent) {}

  // False: certainly no byte of the request reached a store (no endpoint could be connected to, or stop() came first).
  bool sent = true;
  // A write that failed like this may still have been applied: read back before doing it again. Those that take the last
  // of a store's space are: they are applied, and answered like those that it refuses from then on.
  bool ambiguous() const {
    return sent && (code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
                    code == ErrorCode::kCancelled || code == ErrorCode::kTooLarge || code == ErrorCode::kNoSpace);
  }
};

template <typename T>
using StoreResult = tl::expected<T, StoreError>;

struct KeyValue {
  std::string key;
  std::string value;
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
  int64_t version = 0;
  int64_t lease = 0;
};

// [begin, end) in byte order; an empty `end` means the one key `begin`, and an `end` of one NUL byte every key from
// `begin` on.
struct KeyRange {
  std::string begin;
  std::string end;
  static KeyRange single(std::string key) { return {std::move(key), {}}; }
  static KeyRange prefix(std::string_view prefix);  // an empty prefix: every key
};

struct RangeOptions {
  int64_t revision = 0;          // 0: the newest
  int64_t limit = 0;             // 0: no limit
  int64_t min_mod_revision = 0;  // older keys are left out; RangeResult::count has them
  bool keys_only = false;
  bool count_only = false;  // no keys at all, only RangeResult::count
  bool sort_by_create_revision = false;
  bool serializable = false;
  // If not 0, only this cluster may answer: an endpoint may have come to lead to another one, whose revisions and keys
  // have nothing to do with ours. An answer of another is thrown away (kOtherCluster).
  uint64_t cluster_id = 0;
};

struct RangeResult {
  int64_t revision = 0;  // of the store when it answered
  // Whose store it is. Another cluster has another one; a cluster that was wiped and made again in the same place may
  // have the same.
  uint64_t cluster_id = 0;
  std::vector<KeyValue> kvs;
  bool more = false;  // `limit` cut the answer short
  int64_t count = 0;  // of all keys in the range, whatever `limit`
};

struct PutOp {
  std::string key;
  std::string value;
  int64_t lease = 0;
};
struct DeleteOp {
  KeyRange range;
};
struct RangeOp {
  KeyRange range;
  RangeOptions options;
};
using Op = std::variant<PutOp, DeleteOp, RangeOp>;

// True if the target of the key is this number; of a key that does not exist all are 0.
struct Compare {
  enum class Target { kCreateRevision, kModRevision, kLease, kValue };
  std::string key;
  Target target = Target::kCreateRevision;
  int64_t number = 0;
  std::string value = {};  // of kValue, which does not hold for a key that is not there
  bool differs = false;    // true instead if the target is not that
};

struct TxnRequest {
  std::vector<Compare> compares;  // all must hold
  std::vector<Op> success;
  std::vector<Op> failure;
  // Doing it twice does no harm: it is tried on every endpoint.
  bool repeatable = false;
  std::chrono::nanoseconds timeout{0};  // of an attempt; 0: as for other calls
};

struct PutResult {};
struct DeleteResult {
  int64_t deleted = 0;
};
using OpResult = std::variant<PutResult, DeleteResult, RangeResult>;

struct TxnResult {
  bool succeeded = false;
  int64_t revision = 0;
  uint64_t cluster_id = 0;
  std::vector<OpResult> results;  // of the branch taken, in its order
};

struct Lease {
  int64_t id = 0;
  std::chrono::seconds ttl{0};  // what the server granted
  // When the request was sent: the lease cannot end before sent_at + ttl, by any clock that counts like ours.
  BootClock::time_point sent_at;
  uint64_t cluster_id = 0;  // whose it is
};

struct WatchEvent {
  enum class Type { kPut, kDelete };
  Type type = Type::kPut;
  KeyValue kv;  // for kDelete only key and mod_revision are set
};

// One of the ranges of a watch, and the revision that it begins at.
struct WatchRange {
  KeyRange range;
  int64_t start_revision = 0;
};

// The content of one (re-assembled, if fragmented) watch response, about one of the ranges of its watch. A fragmented
// response of more than 16 MiB comes in several batches, so that memory stays bounded.
struct WatchBatch {
  int64_t revision = 0;  // of the store when it was sent
  uint64_t cluster_id = 0;
  size_t range = 0;  // which of the watch's; 0 for the answer to a progress request, which speaks of the stream
  std::vector<WatchEvent> events;  // in revision order; empty for a progress notification
  // Everything of this range before this revision has been delivered: a new watch goes on from here. It is not always
  // `revision` + 1: the answer to a progress request may come ahead of events that are still to be sent.
  int64_t resume_revision = 0;
};

// The watch of one or more ranges over one stream. Destroying it cancels the watch.
//
// Events come in the order of their revisions: the first one that is older than the one before it ends the stream with
// kDisordered, and is not delivered. Not for more than one next() at a time.
class WatchStream {
 public:
  virtual ~WatchStream() = default;
  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  // The next batch with events or a progress notification. Errors end the stream: kCompacted and kDisordered (take a
  // new snapshot), anything else (open a new one at the last revision seen + 1). kDeadlineExceeded: nothing at all came
  // for `timeout`, not even progress, though a progress request was sent at its half: the endpoint is taken for dead.
  // kCancelled: the scheduler stops. REQUIRES of `timeout`: more than a few hundred milliseconds, for a busy machine is
  // not a dead one. The stream outlives the Task.
  virtual Task<StoreResult<WatchBatch>> next(std::chrono::nanoseconds timeout) = 0;

  // Of the store when it created the watch. Less than the start revision - 1: the store went back (a restored backup,
  // another cluster), and would be silent until it has caught up.
  virtual int64_t createdRevision() const = 0;
  virtual uint64_t clusterId() const = 0;  // of every batch

  // New calls go to this stream's endpoint still. If not, a new watch would be at another one.
  virtual bool isAtCurrentEndpoint() const = 0;
  // Asks for a sign of life, of which next() returns, at once instead of at the half of its time: the stream ends as
  // silent unless something comes within `patience`. Nothing if that is under way.
  virtual void doubt(std::chrono::nanoseconds patience) = 0;
  // The endpoint answers, and is not to be relied on: it is left as if it did not answer.
  virtual void leave(const std::string& why) = 0;

 protected:
  WatchStream() = default;
};

// What can be read of a store: from the store itself, or from who passes it on.
class Source {
 public:
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // --- the scheduler's thread ---
  virtual Task<StoreResult<RangeResult>> range(KeyRange range, RangeOptions options) = 0;
  // Opens a watch that refuses an endpoint without leader. Returns once the server said "created" of every range.
  // REQUIRES: there is a range, and none overlaps another.
  virtual Task<StoreResult<std::unique_ptr<WatchStream>>> watch(std::vector<WatchRange> ranges) = 0;

 protected:
  Source() = default;
};

class Store : public Source {
 public:
  // --- any thread ---
  virtual std::string kind() const = 0;  // "etcd": for people
  // Where it is reached, as configured, in any order: two stores that share an endpoint are one.
  virtual std::vector<std::string> endpoints() const = 0;
  // Those of them that are not used, though they answer.
  struct UnusedEndpoint {
    std::string endpoint;
    std::string reason;  // "it is of another cluster"
    bool operator==(const UnusedEndpoint&) const = default;
  };
  virtual std::vector<UnusedEndpoint> unusedEndpoints() const { return {}; }

  // --- the scheduler's thread ---
  virtual Task<StoreResult<TxnResult>> txn(TxnRequest request) = 0;

  virtual Task<StoreResult<Lease>> leaseGrant(std::chrono::seconds ttl) = 0;
  // kLeaseNotFound: the lease is gone. Lease::sent_at is when this request was sent, which is after the call.
  virtual Task<StoreResult<Lease>> leaseKeepAlive(int64_t id, std::chrono::nanoseconds timeout) = 0;
  // How long the lease has still to live, whole seconds rounded down. kLeaseNotFound: it does not exist (any more).
  virtual Task<StoreResult<std::chrono::seconds>> leaseTimeToLive(int64_t id) = 0;
  // The last good deed of a node: possible for some time after the scheduler's stop began.
  virtual Task<StoreResult<void>> leaseRevoke(int64_t id) = 0;

  // One step of the way back to the first endpoint, after a failure has made the client leave it: asks it for a
  // linearizable read, and makes it the current one when it has answered twice in a row. To be called every some tens
  // of seconds, jittered, so that the clients of a member that is back return one after the other. True: moved; new
  // calls and keepalives go there, and an open watch is to follow (WatchStream::isAtCurrentEndpoint()).
  virtual Task<bool> returnHome() = 0;
  // Asks the endpoints that have not said yet which store they lead to, as they were away: until then it may be another
  // one than ours. To be called every second or so.
  virtual Task<void> identifyEndpoints();
  // How often a connection has broken under a call, as a copy of this process finds the connections of its original. It
  // may count other failures of the endpoint besides. For who has no watch of this store that would show it.
  virtual uint64_t breaks() const { return 0; }

 protected:
  Store() = default;
};

// Reads [range] page by page at one revision and hands each page to `page`, which returns false to stop. Returns the
// revision. The range is walked by key, a page being at most `page_size` keys (0: a tenth of the range, from 10,000 to
// 100,000) and 64 MiB, so memory is bounded by one page.
// kCompacted: the revision was compacted away between two pages; start again. kOtherCluster: the pages are not of one
// cluster (or not of the one asked for). Sorting is not possible.
Task<StoreResult<int64_t>> rangePaginated(Store& store, KeyRange range, RangeOptions options, int64_t page_size,
                                          std::function<bool(std::vector<KeyValue>&&)> page);

}  // namespace idetcd::store
