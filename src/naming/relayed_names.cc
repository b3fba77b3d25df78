#include "naming/relayed_names.h"

#include "base/json.h"
#include "store/transaction.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using store::KeyRange;
using store::RangeResult;
using store::StoreError;
using store::StoreResult;
using store::WatchBatch;
using store::WatchStream;
using namespace std::chrono_literals;

constexpr size_t kMostTried = 2;  // before the store is asked
// Where many nodes start at once, the relays among them may be ready later than others.
constexpr int kMostLooks = 8;
constexpr std::chrono::nanoseconds kLookPause = 1s;
constexpr int64_t kMostRead = 3;
// Between two looks for a relay beside the watch: soon after relays have lost the store, and rarely behind a firewall.
constexpr std::chrono::nanoseconds kFirstLook = 10s;
constexpr std::chrono::nanoseconds kLongestLook = 10min;
constexpr std::chrono::nanoseconds kAvoidance = 1min;

}  // namespace

std::string encodeCard(const RelayCard& card) {
  return toText(
      nlohmann::json{{"endpoints", card.endpoints}, {"certificate", card.certificate}, {"secret", card.token}});
}

Result<RelayCard> decodeCard(std::string_view text) {
  const nlohmann::json json = parseJson(text);
  const auto isText = [&json](const char* field) { return json.contains(field) && json[field].is_string(); };
  const bool is_card = json.is_object() && isText("certificate") && isText("secret") && json.contains("endpoints") &&
                       json["endpoints"].is_array() &&
                       std::ranges::all_of(json["endpoints"], [](const auto& one) { return one.is_string(); });
  if (!is_card) return fail("it says no endpoints, certificate and secret");
  return RelayCard{json["endpoints"].get<std::vector<std::string>>(), json["certificate"].get<std::string>(),
                   json["secret"].get<std::string>()};
}

// A watch that knows when another place is better.
class RelayedNames::Stream final : public WatchStream {
 public:
  Stream(RelayedNames& names, std::unique_ptr<WatchStream> inner, std::optional<Relay> relay)
      : names_(names), inner_(std::move(inner)), relay_(std::move(relay)) {}

  Task<StoreResult<WatchBatch>> next(std::chrono::nanoseconds timeout) override {
    StoreResult<WatchBatch> batch = co_await inner_->next(timeout);
    if (!batch && relay_ && !names_.context_.lifetime.stopping()) names_.failed(*relay_, batch.error());
    co_return batch;
  }
  int64_t createdRevision() const override { return inner_->createdRevision(); }
  uint64_t clusterId() const override { return inner_->clusterId(); }
  bool isAtCurrentEndpoint() const override {
    if (relay_) return !names_.is_relay_;
    return inner_->isAtCurrentEndpoint() && !names_.better_;
  }
  void doubt(std::chrono::nanoseconds patience) override { inner_->doubt(patience); }
  void leave(const std::string& why) override {
    if (relay_) return names_.failed(*relay_, {ErrorCode::kUnavailable, why});
    inner_->leave(why);
  }

 private:
  RelayedNames& names_;
  const std::unique_ptr<WatchStream> inner_;
  const std::optional<Relay> relay_;
};

// What the newest revision is, only the store knows.
Task<StoreResult<RangeResult>> RelayedNames::range(KeyRange range, store::RangeOptions options) {
  if (const std::optional<Relay> relay = options.revision > 0 ? relay_ : std::nullopt) {
    KeyRange same = range;
    StoreResult<RangeResult> found = co_await relay->source->range(std::move(same), options);
    if (context_.lifetime.stopping()) co_return stopped();
    const bool is_ours = found && (options.cluster_id == 0 || found->cluster_id == options.cluster_id);
    if (is_ours && found->revision >= options.revision) co_return found;
  }
  co_return co_await context_.store.range(std::move(range), options);
}

Task<StoreResult<std::unique_ptr<WatchStream>>> RelayedNames::watch(std::vector<store::WatchRange> ranges) {
  auto finding = relaysForWatch();
  std::vector<Relay> relays = co_await finding;
  if (context_.lifetime.stopping()) co_return stopped();
  for (Relay& relay : relays) {
    if (!relay.source) relay.source = options_.connect(relay.card);
    if (!relay.source) continue;
    std::vector<store::WatchRange> same = ranges;
    StoreResult<std::unique_ptr<WatchStream>> stream = co_await relay.source->watch(std::move(same));
    if (context_.lifetime.stopping()) co_return stopped();
    if (stream) {
      follow(relay);
      co_return std::make_unique<Stream>(*this, std::move(*stream), relay);
    }
    // One that has begun lately does not have all since then; the store has.
    if (stream.error().code == ErrorCode::kCompacted) continue;
    failed(relay, stream.error());
    looks_first_ = false;
  }
  StoreResult<std::unique_ptr<WatchStream>> stream = co_await context_.store.watch(std::move(ranges));
  if (context_.lifetime.stopping()) co_return stopped();
  follow(std::nullopt);
  if (!stream) co_return std::move(stream);
  co_return std::make_unique<Stream>(*this, std::move(*stream), std::nullopt);
}

void RelayedNames::follow(const std::optional<Relay>& relay) {
  const std::string before = relay_ ? relay_->key : "";
  relay_ = relay;
  if (relay) looks_first_ = true;
  context_.counters.relayed.set(relay ? 1 : 0);
  {
    const std::lock_guard lock(mutex_);
    place_ = relay ? relay->where : "";
  }
  if (relay && relay->key != before) context_.log.info("names come from the node at {}, a relay", relay->where);
  if (!relay && !before.empty()) context_.log.info("names come from the store again, not from a relay");
}

Task<std::vector<RelayedNames::Relay>> RelayedNames::relaysForWatch() {
  std::vector<Relay> relays;
  if (is_relay_ || !mayHaveRelays()) co_return relays;
  if (better_) {
    relays.push_back(std::move(*better_));
    better_.reset();
  } else if (looks_first_) {
    auto finding = findRelays();
    relays = co_await finding;
  }
  co_return relays;
}

// For the first time a node waits until half of the relays of so many nodes are there, or no more come.
Task<std::vector<RelayedNames::Relay>> RelayedNames::findRelays() {
  Listed listed;
  for (int look = 0; look < kMostLooks; ++look) {
    const Listed before = std::exchange(listed, {});
    auto reading = readListed();
    listed = co_await reading;
    const bool is_enough = 2 * options_.fan_out * listed.count >= listed.names;
    const bool grows = look == 0 || listed.names > before.names || listed.count > before.count;
    if (is_enough || !grows || listed.names < 2 * options_.fan_out || has_watched_ || is_relay_) break;
    const std::chrono::nanoseconds pause = context_.jitter.around(kLookPause, 0.5);
    const bool go_on = co_await context_.lifetime.pause(pause);
    if (!go_on) break;
  }
  has_watched_ = true;
  co_return std::move(listed.relays);
}

// From a place in the order of their keys that is another one each time, so that the nodes share the relays.
Task<RelayedNames::Listed> RelayedNames::readListed() {
  const KeyRange all = KeyRange::prefix(options_.prefix);
  const std::string place = options_.prefix + fmt::format("{:016x}", context_.random.next());
  store::Transaction transaction;
  const store::RangeOptions options{.limit = kMostRead};
  const auto behind = transaction.read({{place, all.end}, options});
  const auto before = transaction.read({{all.begin, place}, options});
  std::vector<store::Transaction::Read> names;
  if (!has_watched_) {
    for (const KeyRange& range : options_.ranges) names.push_back(transaction.read({range, {.count_only = true}}));
  }
  transaction.setRepeatable();
  StoreResult<store::TxnResult> answer = co_await context_.store.txn(transaction.request());
  Listed listed;
  if (context_.lifetime.stopping() || !answer || !transaction.fits(*answer)) co_return listed;
  for (const auto read : {behind, before}) {
    const RangeResult& found = transaction.result(*answer, read);
    listed.count += found.count;
    add(found, &listed.relays);
  }
  for (const auto read : names) listed.names += transaction.result(*answer, read).count;
  listed.names = std::min(listed.names, options_.limit);
  co_return listed;
}

void RelayedNames::add(const RangeResult& found, std::vector<Relay>* relays) {
  for (const store::KeyValue& kv : found.kvs) {
    if (relays->size() == kMostTried || isAvoided(kv.key)) continue;
    Result<RelayCard> card = decodeCard(kv.value);
    if (!card) continue;
    std::string where = fmt::format("{}", fmt::join(card->endpoints, ", "));
    relays->push_back({.key = kv.key, .card = std::move(*card), .where = std::move(where), .source = nullptr});
  }
}

void RelayedNames::failed(const Relay& relay, const StoreError& error) {
  context_.counters.relay_failures.add();
  std::erase_if(avoided_until_, [this](const auto& avoided) { return avoided.second <= context_.now(); });
  avoided_until_[relay.key] = context_.now() + context_.jitter.around(kAvoidance, 0.5);
  if (relay_ && relay_->key == relay.key) {
    context_.log.info("the relay at {} is left: {}", relay.where, error.message);
    relay_.reset();
  } else if (!std::exchange(said_unreachable_, true)) {
    context_.log.info("the relay at {} is not used: {}; of others this is not said again", relay.where, error.message);
  }
}

bool RelayedNames::isAvoided(const std::string& key) const {
  const auto found = avoided_until_.find(key);
  return found != avoided_until_.end() && context_.now() < found->second;
}

// It is looked for beside the watch, which goes on meanwhile: what is asked of a relay that is out of reach takes seconds.
Task<void> RelayedNames::lookRegularly() {
  Backoff backoff(context_.jitter, kFirstLook, kLongestLook);
  while (mayHaveRelays()) {
    const std::chrono::nanoseconds pause = backoff.next();
    const bool go_on = co_await context_.lifetime.pause(pause);
    if (!go_on) co_return;
    if (relay_ || better_ || !isLarge()) {
      backoff.reset();
      continue;
    }
    auto finding = findRelays();
    std::vector<Relay> relays = co_await finding;
    for (Relay& relay : relays) {
      auto asking = answers(relay);
      const bool is_better = co_await asking;
      if (context_.lifetime.stopping()) co_return;
      if (!is_better || relay_) continue;
      better_ = std::move(relay);
      break;
    }
  }
}

Task<bool> RelayedNames::answers(Relay& relay) {
  relay.source = options_.connect(relay.card);
  if (!relay.source) co_return false;
  KeyRange any = KeyRange::single(options_.ranges.front().begin);
  const StoreResult<RangeResult> answer = co_await relay.source->range(std::move(any), {.limit = 1});
  if (!answer && !context_.lifetime.stopping()) failed(relay, answer.error());
  co_return answer.has_value();
}

bool RelayedNames::isLarge() const {
  return mayHaveRelays() && !is_relay_ && std::cmp_greater_equal(names_(), 2 * options_.fan_out);
}

}  // namespace idetcd::naming
