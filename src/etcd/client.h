// An asynchronous etcd v3 client: Range, Put, Delete, Txn, leases and watches over several endpoints.
//
// Every Task here runs on the CompletionThread and may be awaited there only. Failures are values; nothing throws.
// No gRPC or protobuf type appears in this header.
//
// Endpoints: the client speaks to one endpoint at a time, its home at first (Options::spread). A call that fails
// because the endpoint is away (unavailable, no leader, time-out) makes the next call use the next endpoint. Calls that
// may be repeated safely (Range, LeaseGrant, LeaseKeepAlive, LeaseRevoke, opening a watch) are tried once on every
// endpoint before they fail. A write is sent once: it goes on to the next endpoint only while it is certain that it was
// not sent (no connection), and its failure may be ambiguous: see EtcdError::ambiguous(). An endpoint that refuses
// connections costs a round trip; one that does not answer costs `call_timeout`, per call until the client has moved
// on. With every endpoint away calls fail with kUnavailable at once, and connections are attempted anew all the while.
//
// TLS: an https endpoint is spoken to over TLS (1.2 or newer) or not at all; its certificate must be for the host of
// the endpoint, from a CA that we trust. The files are read again when they have changed: what they hold counts from
// the next connection on, while the connection there is goes on undisturbed. A change that cannot be used (half
// written, a key of another certificate, expired) is logged and counted, and what was read before stays in use.
//
// Authentication: with credentials every call carries a token, made before the first one and made anew, by one request
// for all calls that wait for it, when etcd does not know it any more (it expired, or etcd started again); the call is
// then made once more. Where etcd has authentication switched off calls go without. Credentials that are refused are
// tried again after a pause that grows to 30 s; until then calls fail at once with kUnauthenticated.
//
// Partitions: everything but serializable reads asks etcd to refuse (metadata `hasleader`) while the member has no
// leader, so that a member cut off from the others fails fast.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tl/expected.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "etcd/completion_thread.h"
#include "etcd/task.h"

namespace idetcd::etcd {

enum class ErrorCode {
  kCancelled,         // by stop() or cancel()
  kUnavailable,       // no connection, no leader, GOAWAY
  kDeadlineExceeded,  // no answer in time
  kLeaseNotFound,     // the lease does not exist (any more)
  kCompacted,         // the revision asked for is gone
  kDisordered,        // a watch has told a change after a later one: see WatchStream::next()
  kNoSpace,           // NOSPACE alarm: reads work, writes do not
  kTooLarge,          // the answer is larger than 64 MiB: ask for less at a time
  kUnauthenticated,
  kPermissionDenied,
  kOtherCluster,  // the answer is another cluster's: see RangeOptions::cluster_id
  kOther,
};

struct EtcdError {
  ErrorCode code = ErrorCode::kOther;
  std::string message;
  // False: certainly no byte of the request reached an etcd (no endpoint could be connected to, or stop() came first).
  bool sent = true;
  // A write that failed like this may still have been applied: read back before doing it again.
  bool ambiguous() const {
    return sent && (code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded ||
                    code == ErrorCode::kCancelled || code == ErrorCode::kTooLarge);
  }
};

template <typename T>
using EtcdResult = tl::expected<T, EtcdError>;

struct KeyValue {
  std::string key;
  std::string value;
  int64_t create_revision = 0;
  int64_t mod_revision = 0;
  int64_t version = 0;
  int64_t lease = 0;
};

// [begin, end) in byte order; an empty `end` means the one key `begin`, and an `end` of one NUL byte every key from
// `begin` on (the API's own convention).
struct KeyRange {
  std::string begin;
  std::string end;
  static KeyRange single(std::string key) { return {std::move(key), {}}; }
  static KeyRange prefix(std::string_view prefix);  // an empty prefix: every key
};

struct RangeOptions {
  int64_t revision = 0;  // 0: the newest
  int64_t limit = 0;     // 0: no limit
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
  // Whose store it is. etcd makes it of the members' addresses and their token: another cluster has another one, but a
  // cluster that was wiped and made again in the same place has the same.
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

struct Compare {
  enum class Target { kCreateRevision, kModRevision, kVersion, kLease, kValue };
  enum class Relation { kEqual, kGreater, kLess, kNotEqual };
  std::string key;
  Target target = Target::kCreateRevision;
  Relation relation = Relation::kEqual;
  int64_t number = 0;  // for every target but kValue
  std::string value;   // for kValue
};

struct TxnRequest {
  std::vector<Compare> compares;  // all must hold
  std::vector<Op> success;
  std::vector<Op> failure;
  // Doing it twice does no harm: it is tried on every endpoint.
  bool repeatable = false;
  std::chrono::nanoseconds timeout{0};  // of an attempt; 0: Client::Options::call_timeout
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

// What one (re-assembled, if fragmented) watch response says, about one of the ranges of its watch. A fragmented
// response of more than 16 MiB comes in several batches, so that memory stays bounded.
struct WatchBatch {
  int64_t revision = 0;  // of the store when it was sent
  uint64_t cluster_id = 0;
  size_t range = 0;  // which of the watch's; 0 for the answer to a progress request, which speaks of the stream
  std::vector<WatchEvent> events;  // in revision order; empty for a progress notification
  // Everything of this range before this revision has been delivered: a new watch goes on from here. It is not always
  // `revision` + 1: etcd before 3.4.25 and 3.5.8 answers progress requests ahead of events that it still has to send.
  int64_t resume_revision = 0;
};

// PEM files. Both or neither of certificate and key; the certificate may be followed by those of its issuers.
struct TlsFiles {
  std::string ca_file;  // whom we trust; empty: the system's CAs (or those of SSL_CERT_FILE in the environment)
  std::string certificate_file;  // ours
  std::string key_file;
  bool operator==(const TlsFiles&) const = default;
};

struct Credentials {
  std::string user;
  std::string password;
  bool operator==(const Credentials&) const = default;
};

class Client;

// The watch of one or more ranges over one stream. Destroying it cancels the watch.
//
// etcd promises events in the order of their revisions. 3.4.23 breaks that promise to a reader that was slow (a process
// that stood still while others wrote): it sends what it had to put aside in any order, after what is newer, so that a
// later break would leave a gap that nothing shows, and a deletion may be followed by the put that it undid. The first
// event that is older than the one before it ends the stream with kDisordered, and is not delivered. Not for more than
// one next() at a time.
class WatchStream {
 public:
  ~WatchStream();
  WatchStream(WatchStream&&) noexcept;
  WatchStream& operator=(WatchStream&&) noexcept;

  // The next batch with events or a progress notification. Errors end the stream: kCompacted and kDisordered (take a
  // new snapshot),
  // anything else (open a new one at the last revision seen + 1). kDeadlineExceeded: nothing at all came for `timeout`,
  // not even progress, though a progress request was sent at its half: the endpoint is taken for dead. kCancelled:
  // stop(). REQUIRES of `timeout`: more than a few hundred milliseconds, for a busy machine is not a dead one.
  Task<EtcdResult<WatchBatch>> next(std::chrono::nanoseconds timeout);

  // Of the store when it created the watch. Less than the start revision - 1: the store went back (a restored backup,
  // another cluster), and etcd would be silent until it has caught up.
  int64_t createdRevision() const;
  uint64_t clusterId() const;  // of every batch

  // The client speaks to this stream's endpoint still. If not, a new watch would be at another one.
  bool isAtCurrentEndpoint() const;
  // The endpoint answers, and is not to be relied on: it is left as if it did not answer.
  void leave(const std::string& why);

 private:
  friend class Client;
  struct Impl;
  explicit WatchStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Client {
 public:
  struct Options {
    // "http://host:port", "https://host:port" or bare "host:port", which is https if `tls` is set and else http; host a
    // name, an IPv4 address, or an IPv6 address in brackets. All https or all http: what fails over never loses TLS.
    std::vector<std::string> endpoints{"http://localhost:2379"};
    std::optional<TlsFiles> tls;  // none: the system's CAs, for https
    std::optional<Credentials> credentials;
    // The endpoints are used in a random order, so that many clients with one list are spread over it.
    bool spread = false;
    std::chrono::milliseconds call_timeout{5000};
    // A connection attempt that fails is repeated after this, and then in longer steps up to the maximum.
    std::chrono::milliseconds reconnect_min{200};
    std::chrono::milliseconds reconnect_max{2000};
    // A connection that is quiet for so long is asked for a sign of life. etcd wants no less than 5 s by default; one
    // that wants more says so (GOAWAY, too_many_pings), and gets more.
    std::chrono::milliseconds ping_interval{10'000};
  };

  // Since the client was made; for metrics.
  struct Statistics {
    uint64_t endpoint_failures = 0;        // calls and streams that failed because their endpoint is away
    uint64_t tls_reloads = 0;              // changed files that were taken over
    uint64_t tls_failures = 0;             // files (first or changed) that could not be used
    uint64_t authentications = 0;          // tokens made
    uint64_t authentication_failures = 0;  // refused credentials
  };

  // An error names the endpoint that cannot be used, for configuration errors. Any thread.
  static Result<void> validateEndpoint(std::string_view endpoint);
  // The host alone: a name as it was written, or an address. REQUIRES: validateEndpoint().
  static std::string endpointHost(std::string_view endpoint);
  // That the options fit together, for configuration errors. Reads no file. Any thread.
  static Result<void> validateOptions(const Options& options);
  // That the files of an https client can be used now. A client whose files cannot be used calls every endpoint away
  // until they can. REQUIRES: validateOptions(). Any thread.
  static Result<void> checkTlsFiles(const Options& options);

  // REQUIRES: the options pass validateOptions(); `thread` outlives the client. The client
  // outlives every Task and WatchStream made by it, which is so once thread.stop() has returned. Any thread.
  Client(CompletionThread& thread, Options options, Logger log);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  CompletionThread& thread();

  Task<EtcdResult<RangeResult>> range(KeyRange range, RangeOptions options);
  Task<EtcdResult<int64_t>> put(PutOp op);  // the revision
  Task<EtcdResult<DeleteResult>> remove(DeleteOp op);
  Task<EtcdResult<TxnResult>> txn(TxnRequest request);

  Task<EtcdResult<Lease>> leaseGrant(std::chrono::seconds ttl);
  // One round trip on the (shared, lazily opened, re-opened when broken) LeaseKeepAlive stream. `ttl` 0 from the
  // server, the lease is gone, is reported as kLeaseNotFound. Lease::sent_at is when this request was handed to the
  // stream.
  Task<EtcdResult<Lease>> leaseKeepAlive(int64_t id, std::chrono::nanoseconds timeout);
  // How long the lease has still to live, whole seconds rounded down. kLeaseNotFound: it does not exist (any more).
  Task<EtcdResult<std::chrono::seconds>> leaseTimeToLive(int64_t id);
  // The last good deed of a node: not cut short by stop(), and possible after stop() began; then it has 2 s in all.
  Task<EtcdResult<void>> leaseRevoke(int64_t id);

  // Opens a watch, with fragments and progress notifications, refusing an endpoint without leader. Returns once the
  // server said "created" of every range. REQUIRES: there is a range, and none overlaps another.
  Task<EtcdResult<WatchStream>> watch(std::vector<WatchRange> ranges);
  Task<EtcdResult<WatchStream>> watch(KeyRange range, int64_t start_revision);

  // One step of the way back to the first endpoint, after a failure has made the client leave it: asks it for a
  // linearizable read, and makes it the current one when it has answered twice in a row. To be called every some tens
  // of seconds, jittered, so that the clients of a member that is back return one after the other. True: moved; new
  // calls and keepalives go there, and an open watch is to follow (WatchStream::isAtCurrentEndpoint()).
  Task<bool> returnHome();

  // The endpoint that the next call goes to, for log lines. Any thread.
  std::string currentEndpoint() const;
  Statistics statistics() const;  // any thread

 private:
  friend class WatchStream;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Reads [range] page by page at one revision and hands each page to `page`, which returns false to stop. Returns the
// revision. The range is walked by key, a page being at most `page_size` keys (0: a tenth of the range, from 10,000 to
// 100,000) and 64 MiB, so memory is bounded by one page. etcd counts all the rest of the range for every page.
// kCompacted: the revision was compacted away between two pages; start again. kOtherCluster: the pages are not of one
// cluster (or not of the one asked for). Sorting is not possible.
Task<EtcdResult<int64_t>> rangePaginated(Client& client, KeyRange range, RangeOptions options, int64_t page_size,
                                         std::function<bool(std::vector<KeyValue>&&)> page);

}  // namespace idetcd::etcd
