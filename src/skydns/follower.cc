#include "skydns/follower.h"

namespace idetcd::skydns {

using runtime::Task;
using store::KeyValue;
using store::StoreError;
using store::StoreResult;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view kLoading = "reading the services";
constexpr std::string_view kWatching = "watching the services";

// Without any event for half of this the watch is asked for a sign of life.
constexpr std::chrono::nanoseconds kSilence = 8s;
// In less time no store is restored from a backup.
constexpr std::chrono::nanoseconds kLongBreak = 10s;
constexpr std::chrono::nanoseconds kAwayPause = 1s;
// After an outage, all servers read within twice this.
constexpr std::chrono::nanoseconds kReadingSpread = 5s;

// A task keeps what it works on alive. Parameters, not captures: a lambda's captures would die before the coroutine.
Task<void> withOwner([[maybe_unused]] std::shared_ptr<void> owner, Task<void> task) { co_await task; }

double secondsOf(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Follower::Follower(runtime::Scheduler& scheduler, store::Store& store, RandomSource& random,
                   std::shared_ptr<ServiceSet> set, Options options, const Logger& log, const metrics::Scope& scope)
    : scheduler_(scheduler),
      store_(store),
      set_(std::move(set)),
      options_(std::move(options)),
      log_(log),
      counters_(scope),
      fresh_(scope, "idetcd_skydns_fresh", "Whether the services are known to be the present ones: 1 or 0.",
             [services = set_] { return BootClock::now() <= services->freshUntil() ? 1.0 : 0.0; }),
      jitter_(random),
      lifetime_(scheduler),
      trouble_(log),
      has_new_leases_(scheduler) {}

void Follower::start(const std::shared_ptr<void>& owner) {
  const auto spawn = [this, &owner](Task<void> task) { scheduler_.spawn(withOwner(owner, std::move(task))); };
  spawn(run());
  spawn(learnLeases());
  spawn(watchFreshness());
  if (store_.endpoints().size() > 1) spawn(naming::returnHomeRegularly(scheduler_, lifetime_, jitter_, store_));
}

Task<void> Follower::run() {
  naming::Backoff backoff(jitter_, 100ms, 5s);
  while (!lifetime_.stopping()) {
    StoreError error;
    if (!is_loaded_) {
      StoreResult<void> loaded = co_await load();
      if (lifetime_.stopping()) co_return;
      if (loaded) {
        trouble_.succeeded(kLoading);
        backoff.reset();
        continue;
      }
      error = std::move(loaded.error());
      trouble_.failed(kLoading, error);
    } else {
      const BootClock::time_point began = scheduler_.now();
      error = co_await follow();
      if (lifetime_.stopping()) co_return;
      counters_.breaks.add();
      if (scheduler_.now() - began > kLongBreak) backoff.reset();
      trouble_.failed(kWatching, error);
    }
    const std::chrono::nanoseconds delay = pauseAfter(error, backoff);
    co_await lifetime_.pause(delay);
  }
}

std::chrono::nanoseconds Follower::pauseAfter(const StoreError& error, naming::Backoff& backoff) {
  const std::chrono::nanoseconds pause = backoff.next();
  return error.sent ? pause : std::min(pause, jitter_.around(kAwayPause, 0.5));
}

// Of the store, by a linearizable read: not a lagging member's.
Task<StoreResult<store::RangeResult>> Follower::readState() {
  store::KeyRange all = range();
  store::RangeOptions options{.limit = 1, .keys_only = true};
  StoreResult<store::RangeResult> state = co_await store_.range(std::move(all), options);
  co_return state;
}

// Reads all, and publishes it.
Task<StoreResult<void>> Follower::load() {
  BootClock::time_point began = scheduler_.now();
  StoreResult<store::RangeResult> state = co_await readState();
  if (state && std::exchange(was_away_, false)) {
    const std::chrono::nanoseconds turn = jitter_.around(kReadingSpread, 1);
    co_await lifetime_.pause(turn);
    if (lifetime_.stopping()) co_return naming::stopped();
    began = scheduler_.now();
    state = co_await readState();
  }
  if (lifetime_.stopping()) co_return naming::stopped();
  if (!state) co_return tl::unexpected(state.error());
  rejections_logged_ = 0;
  services_ = bytes_ = left_out_ = 0;
  std::vector<ServicePtr> services;
  std::function<bool(std::vector<KeyValue>&&)> take = [&, this](std::vector<KeyValue>&& page) {
    if (lifetime_.stopping()) return false;
    for (const KeyValue& kv : page) {
      ServicePtr service = read(kv);
      if (service && admit(*service)) services.push_back(std::move(service));
    }
    return true;
  };
  const store::RangeOptions options{.revision = state->revision, .cluster_id = state->cluster_id};
  auto reading = store::rangePaginated(store_, range(), options, options_.page_size, std::move(take));
  const StoreResult<int64_t> revision = co_await reading;
  if (lifetime_.stopping()) co_return naming::stopped();
  if (!revision) co_return tl::unexpected(revision.error());
  resume_ = *revision;
  cluster_id_ = state->cluster_id;
  is_loaded_ = true;
  counters_.reads.add();
  log_.info("{} services below {} at revision {} in {:.1f} s", services.size(), options_.path, resume_,
            secondsOf(scheduler_.now() - began));
  publish(ServiceTable(std::move(services), serial()));
  confirmed_at_ = began;
  watched_at_ = scheduler_.now();
  confirmed();
  co_return StoreResult<void>{};
}

// Watches until that ends. Clears is_loaded_ if only reading all again helps.
Task<StoreError> Follower::follow() {
  if (scheduler_.now() - watched_at_ > kLongBreak + kSilence) {
    is_loaded_ = false;
    was_away_ = true;
    co_return StoreError{ErrorCode::kUnavailable, "the watch was away for long", false};
  }
  std::vector<store::WatchRange> ranges{{range(), resume_ + 1}};
  StoreResult<std::unique_ptr<store::WatchStream>> opened = co_await store_.watch(std::move(ranges));
  if (lifetime_.stopping()) co_return StoreError{ErrorCode::kCancelled, "stopping"};
  if (!opened) {
    if (opened.error().code == ErrorCode::kCompacted) is_loaded_ = false;
    co_return std::move(opened.error());
  }
  const std::unique_ptr<store::WatchStream> stream = std::move(*opened);
  if (stream->createdRevision() < resume_ || stream->clusterId() != cluster_id_) {
    const StoreResult<store::RangeResult> state = co_await readState();
    const bool is_other = state && (state->revision < resume_ || state->cluster_id != cluster_id_);
    if (is_other) log_.warning("etcd is another store, or was restored: all services are read again");
    if (is_other) is_loaded_ = false;
    co_return StoreError{ErrorCode::kUnavailable, "a watch from the future of the store, or of another one"};
  }
  while (true) {
    StoreResult<store::WatchBatch> batch = co_await stream->next(kSilence);
    if (lifetime_.stopping()) co_return StoreError{ErrorCode::kCancelled, "stopping"};
    if (!batch) {
      const ErrorCode code = batch.error().code;
      if (code == ErrorCode::kCompacted || code == ErrorCode::kDisordered) is_loaded_ = false;
      co_return std::move(batch.error());
    }
    trouble_.succeeded(kWatching);
    if (!batch->events.empty()) apply(batch->events);
    if (left_out_ > 0 && hasRoom()) is_loaded_ = false;
    resume_ = std::max(resume_, batch->resume_revision - 1);
    confirmed_at_ = watched_at_ = scheduler_.now();
    confirmed();
    if (!is_loaded_) co_return StoreError{ErrorCode::kUnavailable, "there is room for services that were left out", false};
    if (!stream->isAtCurrentEndpoint()) co_return StoreError{ErrorCode::kUnavailable, "another endpoint is used", false};
  }
}

void Follower::apply(const std::vector<store::WatchEvent>& events) {
  std::map<std::string, ServicePtr> last;
  for (const store::WatchEvent& event : events) {
    const bool is_put = event.type == store::WatchEvent::Type::kPut;
    last[event.kv.key.substr(options_.path.size())] = is_put ? read(event.kv) : nullptr;
  }
  const std::shared_ptr<const ServiceTable> table = set_->table();
  for (const auto& [key, service] : last) {
    const Service* const before = table->find(key);
    if (before == nullptr) continue;
    --services_;
    bytes_ -= before->bytes();
  }
  std::vector<ServiceTable::Change> changes;
  changes.reserve(last.size());
  for (auto& [key, service] : last) {
    if (service && !admit(*service)) service = nullptr;
    changes.push_back({key, std::move(service)});
  }
  counters_.changes.add(changes.size());
  publish(table->with(std::move(changes), serial()));
}

// Counts the service. False: there is no room for it.
bool Follower::admit(const Service& service) {
  const size_t bytes = service.bytes();
  if (services_ < options_.most_services && bytes <= options_.most_bytes - bytes_) {
    ++services_;
    bytes_ += bytes;
    return true;
  }
  counters_.left_out.add();
  if (left_out_++ == 0) {
    log_.warning("{}{} and further keys are left out: more than {} services or {} MiB", options_.path, service.key,
                 options_.most_services, options_.most_bytes >> 20);
  }
  return false;
}

bool Follower::hasRoom() const {
  return 10 * services_ < 9 * options_.most_services && 10 * bytes_ < 9 * options_.most_bytes;
}

// Null: it is none.
ServicePtr Follower::read(const KeyValue& kv) {
  auto service = parseService(kv.key.substr(options_.path.size()), kv.value);
  if (!service) {
    counters_.rejected.add();
    if (++rejections_logged_ <= kMostLogged) log_.warning("{} is left out: {}", kv.key, service.error().message);
    if (rejections_logged_ == kMostLogged) log_.warning("further keys that are left out are not named");
    return nullptr;
  }
  if (kv.lease != 0) service->lease = leaseTtl(kv.lease);
  return std::make_shared<const Service>(std::move(*service));
}

void Follower::publish(ServiceTable table) {
  counters_.services.set(static_cast<double>(table.size()));
  set_->setLacksServices(left_out_ > 0);
  set_->publish(std::move(table));
}

// A SOA's serial: when the table was made.
uint32_t Follower::serial() const {
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(scheduler_.wallTime()).count());
}

// --- leases ---

// Of one that is new: the least, until etcd has said more.
std::shared_ptr<const LeaseTtl> Follower::leaseTtl(int64_t lease) {
  std::weak_ptr<LeaseTtl>& known = leases_[lease];
  if (auto ttl = known.lock()) return ttl;
  auto ttl = std::make_shared<LeaseTtl>();
  ttl->seconds.store(options_.min_lease_ttl, std::memory_order_relaxed);
  known = ttl;
  new_leases_.push_back(lease);
  has_new_leases_.set();
  if (leases_.size() > most_leases_) {
    std::erase_if(leases_, [](const auto& entry) { return entry.second.expired(); });
    most_leases_ = std::max<size_t>(1000, 2 * leases_.size());
  }
  return ttl;
}

// Asks once for each: for how long it still runs when its first key is seen. One that fails is asked for again behind the
// others.
Task<void> Follower::learnLeases() {
  while (!lifetime_.stopping()) {
    if (new_leases_.empty()) {
      has_new_leases_.reset();
      co_await has_new_leases_.wait(1h);
      continue;
    }
    const int64_t lease = new_leases_.front();
    const auto known = leases_.find(lease);
    const bool is_gone = known == leases_.end() || known->second.expired();
    StoreResult<std::chrono::seconds> left = std::chrono::seconds(0);
    if (!is_gone) left = co_await store_.leaseTimeToLive(lease);
    if (lifetime_.stopping()) co_return;
    new_leases_.pop_front();
    if (!left && left.error().code != ErrorCode::kLeaseNotFound) {
      new_leases_.push_back(lease);
      const std::chrono::nanoseconds delay = jitter_.around(kAwayPause, 0.5);
      co_await lifetime_.pause(delay);
      continue;
    }
    const auto asked = leases_.find(lease);
    const auto ttl = asked != leases_.end() ? asked->second.lock() : nullptr;
    if (!left || !ttl || left->count() <= 0) continue;
    const auto seconds = std::clamp<int64_t>(left->count(), options_.min_lease_ttl, options_.max_lease_ttl);
    ttl->seconds.store(static_cast<uint32_t>(seconds), std::memory_order_relaxed);
  }
}

// --- freshness ---

void Follower::confirmed() {
  set_->setFreshUntil(confirmed_at_ + options_.stale_after);
  if (std::exchange(was_stale_, false)) log_.info("the services below {} are current again", options_.path);
}

Task<void> Follower::watchFreshness() {
  while (true) {
    const BootClock::time_point until = set_->freshUntil();
    std::chrono::nanoseconds left = until - scheduler_.now();
    if (left <= 0ns && until != BootClock::time_point() && !std::exchange(was_stale_, true)) {
      log_.warning("the services below {} are stale: etcd has said nothing for {:.0f} s", options_.path,
                   secondsOf(scheduler_.now() - confirmed_at_));
    }
    if (left <= 0ns) left = options_.stale_after / 10;
    const bool go_on = co_await lifetime_.pause(left);
    if (!go_on) co_return;
  }
}

}  // namespace idetcd::skydns
