#include "simulation/simulated_store.h"

#include <algorithm>
#include <utility>

namespace idetcd::simulation {
namespace {

using runtime::Suspension;
using runtime::Task;
using store::StoreError;
using store::StoreResult;
using store::WatchBatch;

constexpr size_t kHome = 0;

bool endpointIsAway(const StoreError& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded;
}

StoreError stopped(bool sent) { return {ErrorCode::kCancelled, "stopping", sent}; }

template <typename T>
StoreResult<T> as(Answer answer) {
  if (!answer) return tl::unexpected(std::move(answer.error()));
  return std::get<T>(*std::move(answer));
}

}  // namespace

// --- calls ---

// One attempt at one endpoint.
Task<Answer> SimulatedStore::ask(size_t endpoint, Request request, std::chrono::nanoseconds timeout) {
  if (scheduler_.stopping()) co_return tl::unexpected(stopped(false));
  const uint64_t number = ++numbers_;
  Suspension pause(scheduler_, scheduler_.deadlineAfter(timeout));
  calls_[number].waiter = &pause;
  network_.send(number, options_.endpoints[endpoint], std::move(request));
  const auto outcome = co_await pause;
  Call call = std::move(calls_.at(number));
  calls_.erase(number);
  if (call.answer) co_return *std::move(call.answer);
  if (outcome == Suspension::WakeReason::kStopped) co_return tl::unexpected(stopped(true));
  co_return tl::unexpected(StoreError{ErrorCode::kDeadlineExceeded, "no answer in time"});
}

// With the fail-over of etcd::Client.
Task<Answer> SimulatedStore::call(Request request, bool repeatable, std::chrono::nanoseconds timeout) {
  const size_t first = current_;
  bool sent = false;
  for (size_t attempt = 0;; ++attempt) {
    const size_t endpoint = (first + attempt) % size();
    auto asking = ask(endpoint, request, timeout);
    Answer answer = co_await asking;
    if (answer || !endpointIsAway(answer.error())) co_return answer;
    failed(endpoint);
    sent = sent || answer.error().sent;
    answer.error().sent = sent;
    if ((sent && !repeatable) || attempt + 1 == size()) co_return answer;
  }
}

void SimulatedStore::failed(size_t endpoint) {
  if (current_ == endpoint) current_ = (endpoint + 1) % size();
}

void SimulatedStore::answer(uint64_t number, Answer answer) {
  const auto found = calls_.find(number);
  if (found == calls_.end() || found->second.answer) return;
  found->second.answer = std::move(answer);
  found->second.waiter->wake();
}

Task<StoreResult<store::RangeResult>> SimulatedStore::range(store::KeyRange range, store::RangeOptions options) {
  Request request = RangeRequest{std::move(range), options};
  auto calling = call(std::move(request), true, options_.call_timeout);
  Answer answer = co_await calling;
  StoreResult<store::RangeResult> result = as<store::RangeResult>(std::move(answer));
  if (result && options.cluster_id != 0 && result->cluster_id != options.cluster_id)
    co_return tl::unexpected(StoreError{ErrorCode::kOtherCluster, "the cluster is another one"});
  co_return result;
}

Task<StoreResult<store::TxnResult>> SimulatedStore::txn(store::TxnRequest wanted) {
  const bool repeatable = wanted.repeatable;
  const auto timeout = wanted.timeout.count() > 0 ? wanted.timeout : options_.call_timeout;
  Request request = std::move(wanted);
  auto calling = call(std::move(request), repeatable, timeout);
  Answer answer = co_await calling;
  co_return as<store::TxnResult>(std::move(answer));
}

Task<StoreResult<store::Lease>> SimulatedStore::leaseGrant(std::chrono::seconds ttl) {
  const auto sent_at = scheduler_.now();
  Request request = LeaseGrantRequest{ttl};
  auto calling = call(std::move(request), true, options_.call_timeout);
  Answer answer = co_await calling;
  StoreResult<store::Lease> lease = as<store::Lease>(std::move(answer));
  if (lease) lease->sent_at = sent_at;
  co_return lease;
}

Task<StoreResult<store::Lease>> SimulatedStore::leaseKeepAlive(int64_t id, std::chrono::nanoseconds timeout) {
  const auto deadline = scheduler_.now() + timeout;
  for (size_t attempt = 1;; ++attempt) {
    const size_t endpoint = current_;
    const auto sent_at = scheduler_.now();
    Request request = LeaseKeepAliveRequest{id};
    auto asking = ask(endpoint, std::move(request), deadline - sent_at);
    Answer answer = co_await asking;
    StoreResult<store::Lease> lease = as<store::Lease>(std::move(answer));
    if (lease) lease->sent_at = sent_at;
    if (lease || !endpointIsAway(lease.error())) co_return lease;
    failed(endpoint);
    if (lease.error().code == ErrorCode::kDeadlineExceeded || attempt == size()) co_return lease;
  }
}

Task<StoreResult<std::chrono::seconds>> SimulatedStore::leaseTimeToLive(int64_t id) {
  Request request = LeaseTimeToLiveRequest{id};
  auto calling = call(std::move(request), true, options_.call_timeout);
  Answer answer = co_await calling;
  co_return as<std::chrono::seconds>(std::move(answer));
}

Task<StoreResult<void>> SimulatedStore::leaseRevoke(int64_t id) {
  Request request = LeaseRevokeRequest{id};
  auto calling = call(std::move(request), true, options_.call_timeout);
  const Answer answer = co_await calling;
  if (!answer) co_return tl::unexpected(answer.error());
  co_return StoreResult<void>{};
}

std::vector<std::string> SimulatedStore::endpoints() const {
  std::vector<std::string> names;
  for (const size_t member : options_.endpoints) names.push_back(std::to_string(member));
  return names;
}

Task<bool> SimulatedStore::returnHome() {
  constexpr std::chrono::seconds kTimeout{2};
  constexpr int kAnswersWanted = 2;
  if (current_ == kHome || scheduler_.stopping()) {
    home_answers_ = 0;
    co_return false;
  }
  Request request = RangeRequest{store::KeyRange::single("0"), {.keys_only = true}};
  auto asking = ask(kHome, std::move(request), kTimeout);
  const Answer answer = co_await asking;
  home_answers_ = answer ? home_answers_ + 1 : 0;
  if (home_answers_ < kAnswersWanted || current_ == kHome) co_return false;
  home_answers_ = 0;
  current_ = kHome;
  co_return true;
}

// --- watches ---

class SimulatedStore::Stream final : public store::WatchStream {
 public:
  Stream(SimulatedStore& store, uint64_t number, std::shared_ptr<WatchState> watch)
      : store_(store), number_(number), watch_(std::move(watch)) {}
  ~Stream() override {
    if (store_.watches_.erase(number_) > 0) store_.network_.cancelWatch(number_);
  }

  Task<StoreResult<WatchBatch>> next(std::chrono::nanoseconds timeout) override {
    while (true) {
      if (!watch_->inbox.empty()) {
        WatchBatch batch = std::move(watch_->inbox.front());
        watch_->inbox.pop_front();
        if (!batch.events.empty())
          store_.highest_seen_ = std::max(store_.highest_seen_, batch.events.back().kv.mod_revision);
        co_return batch;
      }
      if (watch_->error) {
        if (endpointIsAway(*watch_->error)) store_.failed(watch_->endpoint);
        co_return tl::unexpected(*watch_->error);
      }
      auto waiting = store_.waitForNews(watch_, watch_->doubted.value_or(timeout / 2));
      const auto outcome = co_await waiting;
      if (outcome == Suspension::WakeReason::kStopped) co_return tl::unexpected(stopped(true));
      if (outcome == Suspension::WakeReason::kWoken) continue;
      if (watch_->doubted) store_.fail(number_, *watch_, {ErrorCode::kDeadlineExceeded, "the watch is silent"});
      doubt(timeout / 2);
    }
  }

  int64_t createdRevision() const override { return watch_->created_revision; }
  uint64_t clusterId() const override { return watch_->cluster_id; }
  bool isAtCurrentEndpoint() const override { return watch_->endpoint == store_.current_; }
  void doubt(std::chrono::nanoseconds patience) override {
    if (watch_->doubted || watch_->error) return;
    watch_->doubted = patience;
    store_.network_.askProgress(number_);
    if (watch_->reader != nullptr) watch_->reader->wake();
  }
  void leave(const std::string&) override { store_.failed(watch_->endpoint); }

 private:
  SimulatedStore& store_;
  const uint64_t number_;
  const std::shared_ptr<WatchState> watch_;
};

Task<StoreResult<std::unique_ptr<store::WatchStream>>> SimulatedStore::watch(std::vector<store::WatchRange> ranges) {
  const size_t first = current_;
  for (size_t attempt = 0;;) {
    if (scheduler_.stopping()) co_return tl::unexpected(stopped(false));
    const size_t endpoint = (first + attempt) % size();
    const uint64_t number = ++numbers_;
    const auto watch = std::make_shared<WatchState>();
    watch->endpoint = endpoint;
    watch->ranges = ranges;
    watches_[number] = watch;
    auto stream = std::make_unique<Stream>(*this, number, watch);
    network_.openWatch(number, options_.endpoints[endpoint], ranges);
    auto outcome = Suspension::WakeReason::kWoken;
    while (outcome == Suspension::WakeReason::kWoken && !watch->created && !watch->error) {
      auto waiting = waitForNews(watch, options_.call_timeout);
      outcome = co_await waiting;
    }
    if (watch->created) co_return std::unique_ptr<store::WatchStream>(std::move(stream));
    if (outcome == Suspension::WakeReason::kStopped) co_return tl::unexpected(stopped(true));
    const StoreError error = watch->error.value_or(StoreError{ErrorCode::kDeadlineExceeded, "the watch is silent"});
    if (!endpointIsAway(error)) co_return tl::unexpected(error);
    failed(endpoint);
    if (++attempt == size()) co_return tl::unexpected(error);
  }
}

Task<Suspension::WakeReason> SimulatedStore::waitForNews(std::shared_ptr<WatchState> watch,
                                                         std::chrono::nanoseconds timeout) {
  Suspension pause(scheduler_, scheduler_.deadlineAfter(timeout));
  watch->reader = &pause;
  const auto outcome = co_await pause;
  watch->reader = nullptr;
  co_return outcome;
}

std::shared_ptr<SimulatedStore::WatchState> SimulatedStore::find(uint64_t stream) {
  const auto found = watches_.find(stream);
  return found == watches_.end() || found->second->error ? nullptr : found->second;
}

void SimulatedStore::watchCreated(uint64_t stream, int64_t revision, uint64_t cluster_id) {
  const auto watch = find(stream);
  if (!watch) return;
  watch->created = true;
  watch->created_revision = revision;
  watch->cluster_id = cluster_id;
  if (watch->reader != nullptr) watch->reader->wake();
}

void SimulatedStore::watchBatch(uint64_t stream, WatchBatch batch) {
  const auto watch = find(stream);
  if (!watch) return;
  watch->doubted.reset();
  // As etcd::Client: some versions of etcd deliver events from before a revision that was in the future.
  const int64_t start = watch->ranges[batch.range].start_revision;
  const size_t old = std::erase_if(batch.events, [&](const auto& event) { return event.kv.mod_revision < start; });
  if (old > 0 && batch.events.empty()) return;
  batch.resume_revision = std::max(batch.resume_revision, start);
  watch->inbox.push_back(std::move(batch));
  if (watch->reader != nullptr) watch->reader->wake();
}

void SimulatedStore::watchEnded(uint64_t stream, StoreError error) {
  const auto watch = find(stream);
  if (watch) fail(stream, *watch, std::move(error));
}

void SimulatedStore::fail(uint64_t stream, WatchState& watch, StoreError error) {
  if (watch.error) return;
  watch.error = std::move(error);
  network_.cancelWatch(stream);
  if (watch.reader != nullptr) watch.reader->wake();
}

void SimulatedStore::breakConnections() {
  const StoreError broken{ErrorCode::kUnavailable, "the connection broke"};
  for (auto& [number, call] : calls_) {
    if (call.answer) continue;
    call.answer = tl::unexpected(broken);
    call.waiter->wake();
  }
  for (auto& [number, watch] : watches_) fail(number, *watch, broken);
}

}  // namespace idetcd::simulation
