// An asynchronous etcd v3 client: Range, Txn, leases and watches over several endpoints, as store/store.h describes them.
//
// Every Task here runs on the CompletionThread and may be awaited there only. Failures are values; nothing throws.
// No gRPC or protobuf type appears in this header.
//
// Endpoints: the client begins at its home (Options::spread). An endpoint that refuses connections costs a round trip;
// one that does not answer costs `call_timeout`, per call until the client has moved on. With every endpoint away calls
// fail with kUnavailable at once, and connections are attempted anew all the while. Those that lead to another cluster
// than most are not used (endpoints_internal.h), and none that is etcd's grpc-proxy: it shows no progress of a watch
// (etcd issue 19710), its "created" says no cluster, and it renews leases at its own pace, so that a renewal that it
// confirms may have come before the request for it. It is recognised by its list of members, which says no cluster; one
// without --advertise-client-url passes that request on, and is known only where several clients share a watch of it, whose
// "created" says none.
//
// TLS: an https endpoint is reached over TLS (1.2 or newer) or not at all; its certificate must be for the host of the
// endpoint, from a CA that we trust. The files are read again when they have changed: what they hold counts from the
// next connection on, while the connection there is goes on undisturbed. A change that cannot be used (half written, a
// key of another certificate, expired) is logged and counted, and what was read before stays in use.
//
// Authentication: with credentials every call carries a token, made before the first one and made anew, by one request
// for all calls that wait for it, when etcd does not know it any more (it expired, or etcd started again); the call is
// then made once more. Where etcd has authentication switched off calls go without. Credentials that are refused are
// tried again after a pause that grows to 30 s; until then calls fail at once with kUnauthenticated.
//
// Partitions: everything but serializable reads asks etcd to refuse (metadata `hasleader`) while the member has no
// leader, so that a member cut off from the others fails fast.
#pragma once

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/result.h"
#include "etcd/completion_thread.h"
#include "store/store.h"

namespace idetcd::etcd {

using namespace store;

// PEM files. Both or neither of certificate and key; the certificate may be followed by those of its issuers.
struct TlsFiles {
  std::string ca_file;           // trusted CAs; empty: the system's CAs (or those of SSL_CERT_FILE in the environment)
  std::string certificate_file;  // ours
  std::string key_file;
  bool operator==(const TlsFiles&) const = default;
};

struct Credentials {
  std::string user;
  std::string password;
  bool operator==(const Credentials&) const = default;
};

class Client final : public Store {
 public:
  struct Options {
    // "http://host:port", "https://host:port" or bare "host:port", which is https if `tls` is set and else http; host a
    // name, an IPv4 address, or an IPv6 address in brackets. All https or all http: what fails over never loses TLS.
    // Empty: setEndpoints() follows; until then the files of `tls` need not exist.
    std::vector<std::string> endpoints{"http://localhost:2379"};
    std::optional<TlsFiles> tls;  // none: the system's CAs, for https
    std::optional<Credentials> credentials;
    // In place of `tls` and `credentials`: the endpoints are those of a Server, known by its certificate, in PEM, alone,
    // and each call carries its token.
    struct Pinned {
      std::string certificate;
      std::string token;
    };
    std::optional<Pinned> pinned;
    // The endpoints are used in a random order, so that many clients with one list are spread over it.
    bool spread = false;
    // The endpoints are named by their cluster. So each says its cluster when it is first used, where else all do before
    // the first call, and there is a connection to one alone once that has answered.
    bool self_founded = false;
    std::chrono::milliseconds call_timeout{5000};
    // A connection attempt that fails is repeated after this, and then in longer steps up to the maximum.
    std::chrono::milliseconds reconnect_min{200};
    std::chrono::milliseconds reconnect_max{1000};
    // A connection that is quiet for so long is asked for a sign of life. etcd wants no less than 5 s by default; one
    // that wants more says so (GOAWAY, too_many_pings), and gets more.
    std::chrono::milliseconds ping_interval{10'000};
    metrics::Scope metrics{};
    // Looks at the files of `tls`, which are read again when they change.
    std::shared_ptr<Executor> executor = std::make_shared<Executor>();
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
  // Until when our own certificate holds; none: there is none, or it cannot be read. Reads it. Any thread.
  static std::optional<std::chrono::system_clock::time_point> certificateEnd(const TlsFiles& files);

  // REQUIRES: the options pass validateOptions(), or have no endpoint; `thread` outlives the client. Reads the files of `tls`. The client
  // outlives every Task and WatchStream made by it, which is so once thread.stop() has returned. Any thread.
  Client(CompletionThread& thread, Options options, const Logger& log);
  ~Client() override;

  CompletionThread& thread();

  // Calls from now on go to these. Those under way go on, and so does the connection of an endpoint that stays: it
  // remains the one in use, and home. Of a tie between clusters, that of endpoints that stay is ours. None: every call
  // fails with kUnavailable at once, unsent. Reads the files of `tls` when the first endpoints come. Any thread.
  // REQUIRES: `endpoints` is empty, or the options with it pass validateOptions(), and it is https or http as before.
  void setEndpoints(std::vector<std::string> endpoints);

  std::string kind() const override { return "etcd"; }
  std::vector<std::string> endpoints() const override;
  std::vector<UnusedEndpoint> unusedEndpoints() const override;
  Task<StoreResult<RangeResult>> range(KeyRange range, RangeOptions options) override;
  Task<StoreResult<TxnResult>> txn(TxnRequest request) override;

  Task<StoreResult<Lease>> leaseGrant(std::chrono::seconds ttl) override;
  // One round trip on the (shared, lazily opened, re-opened when broken) LeaseKeepAlive stream. Lease::sent_at is when
  // this request was handed to the stream.
  Task<StoreResult<Lease>> leaseKeepAlive(int64_t id, std::chrono::nanoseconds timeout) override;
  Task<StoreResult<std::chrono::seconds>> leaseTimeToLive(int64_t id) override;
  // Not cut short by the thread's stop(), and possible after stop() began; then it has 2 s in all.
  Task<StoreResult<void>> leaseRevoke(int64_t id) override;

  // With fragments and progress notifications. etcd 3.4.23 sends a reader that was slow (a process that stood still while
  // others wrote) what it had to put aside in any order, after what is newer: a later break would leave a gap that
  // nothing shows, and a deletion may be followed by the put that it undid (kDisordered). etcd before 3.4.25 and 3.5.8
  // answers progress requests ahead of events that it still has to send (WatchBatch::resume_revision).
  Task<StoreResult<std::unique_ptr<WatchStream>>> watch(std::vector<WatchRange> ranges) override;

  Task<bool> returnHome() override;
  Task<void> identifyEndpoints() override;
  uint64_t breaks() const override;

 private:
  friend class Cluster;
  friend struct ClientInsight;  // of the tests
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace idetcd::etcd
