// etcd as one simulated process sees it: the same choice of endpoints, repetitions, time-outs and errors as
// etcd::Client, over messages that a network carries, delays and loses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/scheduler.h"
#include "store/store.h"

namespace idetcd::simulation {

struct RangeRequest {
  store::KeyRange range;
  store::RangeOptions options;
  std::function<bool(const store::KeyValue&)> wants_value = {};  // see EtcdModel::range()
};
struct LeaseGrantRequest {
  std::chrono::seconds ttl{0};
};
struct LeaseKeepAliveRequest {
  int64_t id = 0;
};
struct LeaseTimeToLiveRequest {
  int64_t id = 0;
};
struct LeaseRevokeRequest {
  int64_t id = 0;
};
using Request = std::variant<RangeRequest, store::TxnRequest, LeaseGrantRequest, LeaseKeepAliveRequest,
                             LeaseTimeToLiveRequest, LeaseRevokeRequest>;
// monostate: a lease was revoked.
using Response = std::variant<std::monostate, store::RangeResult, store::TxnResult, store::Lease, std::chrono::seconds>;
using Answer = store::StoreResult<Response>;

// Where a process sends its messages. Never answers within a call.
class Network {
 public:
  virtual ~Network() = default;
  // `call` counts up from 1, and so does `stream`; both in one count.
  virtual void send(uint64_t call, size_t member, Request request) = 0;
  virtual void openWatch(uint64_t stream, size_t member, std::vector<store::WatchRange> ranges) = 0;
  virtual void askProgress(uint64_t stream) = 0;
  virtual void cancelWatch(uint64_t stream) = 0;
};

class SimulatedStore final : public store::Store {
 public:
  template <typename T>
  using Task = runtime::Task<T>;
  template <typename T>
  using StoreResult = store::StoreResult<T>;

  struct Options {
    std::vector<size_t> endpoints;  // the members, in the order in which they are tried
    std::chrono::nanoseconds call_timeout{std::chrono::seconds(5)};
  };

  // What is passed by reference outlives the store, and the store its Tasks and streams.
  SimulatedStore(runtime::Scheduler& scheduler, Network& network, Options options)
      : scheduler_(scheduler), network_(network), options_(std::move(options)) {}

  std::string kind() const override { return "simulation"; }
  std::vector<std::string> endpoints() const override;
  Task<StoreResult<store::RangeResult>> range(store::KeyRange range, store::RangeOptions options) override;
  Task<StoreResult<store::TxnResult>> txn(store::TxnRequest request) override;
  Task<StoreResult<store::Lease>> leaseGrant(std::chrono::seconds ttl) override;
  Task<StoreResult<store::Lease>> leaseKeepAlive(int64_t id, std::chrono::nanoseconds timeout) override;
  Task<StoreResult<std::chrono::seconds>> leaseTimeToLive(int64_t id) override;
  Task<StoreResult<void>> leaseRevoke(int64_t id) override;
  Task<StoreResult<std::unique_ptr<store::WatchStream>>> watch(std::vector<store::WatchRange> ranges) override;
  Task<bool> returnHome() override;

  // --- the network; within the process's turn. What nobody waits for any more is dropped ---
  void answer(uint64_t call, Answer answer);
  void watchCreated(uint64_t stream, int64_t revision, uint64_t cluster_id);
  void watchBatch(uint64_t stream, store::WatchBatch batch);
  void watchEnded(uint64_t stream, store::StoreError error);
  // All connections break.
  void breakConnections();

  size_t currentMember() const { return options_.endpoints[current_]; }
  // The highest revision of an event that next() has returned: one that still waits for its reader has not been seen.
  int64_t highestSeen() const { return highest_seen_; }

 private:
  class Stream;
  struct Call {
    runtime::Suspension* waiter = nullptr;
    std::optional<Answer> answer;
  };
  struct WatchState {
    size_t endpoint = 0;
    std::vector<store::WatchRange> ranges;
    bool created = false;
    int64_t created_revision = 0;
    uint64_t cluster_id = 0;
    std::deque<store::WatchBatch> inbox;
    std::optional<store::StoreError> error;
    runtime::Suspension* reader = nullptr;
    std::optional<std::chrono::nanoseconds> doubted;
  };

  size_t size() const { return options_.endpoints.size(); }
  Task<Answer> ask(size_t endpoint, Request request, std::chrono::nanoseconds timeout);
  Task<Answer> call(Request request, bool repeatable, std::chrono::nanoseconds timeout);
  Task<runtime::Suspension::WakeReason> waitForNews(std::shared_ptr<WatchState> watch,
                                                    std::chrono::nanoseconds timeout);
  std::shared_ptr<WatchState> find(uint64_t stream);
  void fail(uint64_t stream, WatchState& watch, store::StoreError error);
  void failed(size_t endpoint);

  runtime::Scheduler& scheduler_;
  Network& network_;
  const Options options_;
  size_t current_ = 0;  // of the endpoints
  int home_answers_ = 0;
  uint64_t numbers_ = 0;  // of calls and streams
  int64_t highest_seen_ = 0;
  std::map<uint64_t, Call> calls_;
  std::map<uint64_t, std::shared_ptr<WatchState>> watches_;
};

}  // namespace idetcd::simulation
