#include "simulation/relay_network.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "simulation/network.h"

namespace idetcd::simulation {
namespace {

using runtime::Suspension;
using runtime::Task;
using store::RangeResult;
using store::StoreError;
using store::StoreResult;
using store::WatchBatch;
using store::WatchStream;
using namespace std::chrono_literals;

constexpr Duration kLeastRelayDelay = 100us;
constexpr Duration kMostRelayDelay = 20ms;
constexpr Duration kRelayTimeout = 3s;

StoreError relayRefuses() { return {ErrorCode::kUnavailable, "there is no such relay", false}; }
StoreError relayIsSilent() { return {ErrorCode::kDeadlineExceeded, "the relay is silent"}; }

size_t bytesOf(const store::KeyValue& kv) { return 40 + kv.key.size() + kv.value.size(); }

// What one end has sent and the other one waits for.
struct RangeCall {
  std::optional<StoreResult<RangeResult>> answer;
  Suspension* waiter = nullptr;
};

struct WatchCall {
  bool created = false;
  int64_t created_revision = 0;
  uint64_t cluster_id = 0;
  std::vector<store::WatchRange> ranges;
  std::deque<WatchBatch> inbox;
  std::optional<StoreError> error;
  std::optional<Duration> doubted;
  Suspension* reader = nullptr;
  Time next_delivery;
  bool closed = false;  // by the reader
  bool silent = false;
  std::weak_ptr<WatchStream> served;

  void wake() const {
    if (reader != nullptr) reader->wake();
  }
  void fail(StoreError why) {
    if (!error) error = std::move(why);
    wake();
  }
};

Task<Suspension::WakeReason> waitFor(runtime::Scheduler& scheduler, Suspension** place, Duration timeout) {
  Suspension pause(scheduler, scheduler.deadlineAfter(timeout));
  *place = &pause;
  const auto outcome = co_await pause;
  *place = nullptr;
  co_return outcome;
}

}  // namespace

void RelayNetwork::send(uint64_t process, std::function<void()> what, Time* next_delivery) {
  Time time = time_.now() + random_.between(kLeastRelayDelay, kMostRelayDelay);
  if (next_delivery != nullptr) time = *next_delivery = std::max(time, *next_delivery);
  time_.at(time, [this, process, what = std::move(what)] {
    if (SimulatedScheduler* const scheduler = find_(process)) scheduler->deliver(what);
  });
}

// --- the reader's end ---

class RelayStream final : public WatchStream {
 public:
  RelayStream(RelayNetwork& network, SimulatedScheduler& scheduler, uint64_t relay, std::shared_ptr<WatchCall> call)
      : network_(network), scheduler_(scheduler), relay_(relay), call_(std::move(call)) {}
  ~RelayStream() override { call_->closed = true; }

  Task<StoreResult<WatchBatch>> next(std::chrono::nanoseconds timeout) override {
    const std::shared_ptr<WatchCall> call = call_;
    while (true) {
      if (!call->inbox.empty()) {
        WatchBatch batch = std::move(call->inbox.front());
        call->inbox.pop_front();
        co_return batch;
      }
      if (call->error) co_return tl::unexpected(*call->error);
      auto waiting = waitFor(scheduler_, &call->reader, call->doubted.value_or(timeout / 2));
      const auto outcome = co_await waiting;
      if (outcome == Suspension::WakeReason::kStopped)
        co_return tl::unexpected(StoreError{ErrorCode::kCancelled, "stopping"});
      if (outcome == Suspension::WakeReason::kWoken) continue;
      if (call->doubted) call->fail(relayIsSilent());
      doubt(timeout / 2);
    }
  }
  int64_t createdRevision() const override { return call_->created_revision; }
  uint64_t clusterId() const override { return call_->cluster_id; }
  bool isAtCurrentEndpoint() const override { return true; }
  void doubt(std::chrono::nanoseconds patience) override {
    if (call_->doubted || call_->error) return;
    call_->doubted = patience;
    if (!call_->silent) {
      network_.send(relay_, [call = call_] {
        if (const auto served = call->served.lock()) served->doubt(1s);
      });
    }
    call_->wake();
  }
  void leave(const std::string&) override {}

 private:
  RelayNetwork& network_;
  SimulatedScheduler& scheduler_;
  const uint64_t relay_;
  const std::shared_ptr<WatchCall> call_;
};

class RelayConnection final : public store::Source, public std::enable_shared_from_this<RelayConnection> {
 public:
  RelayConnection(RelayNetwork& network, uint64_t reader, uint64_t relay, std::string token,
                  ValueFilter filter)
      : network_(network),
        scheduler_(*network.find_(reader)),
        reader_(reader),
        relay_(relay),
        token_(std::move(token)),
        filter_(std::move(filter)) {}

  Task<StoreResult<RangeResult>> range(store::KeyRange range, store::RangeOptions options) override {
    const auto self = shared_from_this();
    const auto call = std::make_shared<RangeCall>();
    if (!network_.random_.chance(network_.lost_)) {
      network_.send(relay_, [self, call, range = std::move(range), options] {
        self->network_.find_(self->relay_)->spawn(self->answer(self, call, range, options));
      });
    }
    auto waiting = waitFor(scheduler_, &call->waiter, kRelayTimeout);
    co_await waiting;
    if (scheduler_.stopping()) co_return tl::unexpected(StoreError{ErrorCode::kCancelled, "stopping"});
    if (!call->answer) co_return tl::unexpected(relayIsSilent());
    co_return std::move(*call->answer);
  }

  Task<StoreResult<std::unique_ptr<WatchStream>>> watch(std::vector<store::WatchRange> ranges) override {
    const auto self = shared_from_this();
    const auto call = std::make_shared<WatchCall>();
    call->ranges = std::move(ranges);
    auto stream = std::make_unique<RelayStream>(network_, scheduler_, relay_, call);
    network_.send(relay_, [self, call] { self->network_.find_(self->relay_)->spawn(self->serve(self, call)); });
    auto outcome = Suspension::WakeReason::kWoken;
    while (outcome == Suspension::WakeReason::kWoken && !call->created && !call->error) {
      auto waiting = waitFor(scheduler_, &call->reader, kRelayTimeout);
      outcome = co_await waiting;
    }
    if (call->created) co_return std::unique_ptr<WatchStream>(std::move(stream));
    if (outcome == Suspension::WakeReason::kStopped)
      co_return tl::unexpected(StoreError{ErrorCode::kCancelled, "stopping"});
    co_return tl::unexpected(call->error.value_or(relayIsSilent()));
  }

 private:
  // --- the relay's end ---

  std::shared_ptr<store::Source> names() const {
    const auto found = network_.services_.find(token_);
    return found == network_.services_.end() ? nullptr : found->second;
  }

  static Task<void> answer(std::shared_ptr<RelayConnection> self, std::shared_ptr<RangeCall> call,
                           store::KeyRange range, store::RangeOptions options) {
    StoreResult<RangeResult> found = tl::unexpected(relayRefuses());
    // As over the network: the relay learns range, revision and limit.
    const store::RangeOptions told{.revision = options.revision, .limit = options.limit};
    if (const auto names = self->names()) found = co_await names->range(std::move(range), told);
    if (found) {
      for (const store::KeyValue& kv : found->kvs) self->network_.bytes_ += bytesOf(kv);
      self->filter_.apply(&*found);
    }
    const auto shared = std::make_shared<StoreResult<RangeResult>>(std::move(found));
    self->network_.send(self->reader_, [call, shared] {
      call->answer = std::move(*shared);
      if (call->waiter != nullptr) call->waiter->wake();
    });
  }

  void tell(const std::shared_ptr<WatchCall>& call, std::function<void(WatchCall&)> what) {
    if (network_.random_.chance(network_.lost_)) call->silent = true;
    if (call->silent) return;
    network_.send(
        reader_,
        [call, what = std::move(what)] {
          if (call->silent) return;
          what(*call);
          call->wake();
        },
        &call->next_delivery);
  }

  static Task<void> serve(std::shared_ptr<RelayConnection> self, std::shared_ptr<WatchCall> call) {
    const auto names = self->names();
    std::vector<store::WatchRange> ranges = call->ranges;
    StoreResult<std::unique_ptr<WatchStream>> opened = tl::unexpected(relayRefuses());
    if (names) opened = co_await names->watch(std::move(ranges));
    if (!opened) {
      self->tell(call, [error = opened.error()](WatchCall& told) { told.fail(error); });
      co_return;
    }
    const std::shared_ptr<WatchStream> stream = std::move(*opened);
    call->served = stream;
    self->tell(call, [revision = stream->createdRevision(), cluster = stream->clusterId()](WatchCall& told) {
      told.created = true;
      told.created_revision = revision;
      told.cluster_id = cluster;
    });
    while (!call->closed && !call->silent) {
      StoreResult<WatchBatch> batch = co_await stream->next(1s);
      if (!batch && batch.error().code == ErrorCode::kDeadlineExceeded) continue;
      if (!batch) {
        self->tell(call, [error = batch.error()](WatchCall& told) { told.fail(error); });
        co_return;
      }
      for (const store::WatchEvent& event : batch->events) self->network_.bytes_ += bytesOf(event.kv);
      self->filter_.apply(&*batch);
      const auto shared = std::make_shared<WatchBatch>(std::move(*batch));
      self->tell(call, [shared](WatchCall& told) {
        told.doubted.reset();
        told.inbox.push_back(std::move(*shared));
      });
    }
  }

  RelayNetwork& network_;
  SimulatedScheduler& scheduler_;
  const uint64_t reader_;
  const uint64_t relay_;
  const std::string token_;
  const ValueFilter filter_;
};

// --- services ---

class RelayNetwork::Served final : public naming::RelayService {
 public:
  Served(RelayNetwork& network, uint64_t process, std::shared_ptr<store::Source> names)
      : network_(network), card_{{fmt::format("{}", process)}, "", fmt::format("{}", ++network.services_made_)} {
    network_.services_[card_.token] = std::move(names);
  }
  ~Served() override { network_.services_.erase(card_.token); }
  const naming::RelayCard& card() const override { return card_; }
  size_t readers() const override { return 0; }

 private:
  RelayNetwork& network_;
  const naming::RelayCard card_;
};

naming::RelayOptions RelayNetwork::optionsOf(uint64_t process, int64_t fan_out, ValueFilter filter) {
  naming::RelayOptions made;
  made.fan_out = fan_out;
  made.connect = [this, process,
                  filter = std::move(filter)](const naming::RelayCard& card) -> std::shared_ptr<store::Source> {
    return std::make_shared<RelayConnection>(*this, process, std::stoull(card.endpoints.front()), card.token, filter);
  };
  made.serve = [this, process](std::shared_ptr<store::Source> names,
                               const std::vector<IpAddress>&) -> Result<std::unique_ptr<naming::RelayService>> {
    return std::make_unique<Served>(*this, process, std::move(names));
  };
  return made;
}

}  // namespace idetcd::simulation
