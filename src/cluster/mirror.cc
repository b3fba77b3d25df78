#include "cluster/mirror.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cluster/name_pages.h"

namespace idetcd::cluster {
namespace {

using etcd::ErrorCode;
using etcd::EtcdError;
using etcd::EtcdResult;
using etcd::KeyValue;
using etcd::Task;
using etcd::WatchBatch;
using etcd::WatchStream;
using records::Freshness;
using namespace std::chrono_literals;

constexpr std::string_view kLoading = "reading the names";
constexpr std::string_view kWatching = "watching the names";

// A comparison soon after a watch was opened shows what may have been lost between this one and the one before.
constexpr std::chrono::nanoseconds kFirstRepair = 2s;
constexpr size_t kValuesPerRequest = 100;    // etcd takes 128 operations in a transaction
constexpr size_t kMostDifferences = 10'000;  // beyond, all is read
constexpr size_t kNewestChecked = 64;
// A cluster of up to so many nodes compares at repair_interval.
constexpr double kNodesPerInterval = 500;

std::chrono::nanoseconds times(std::chrono::nanoseconds duration, double factor) {
  return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(duration.count()) * factor));
}

tl::unexpected<EtcdError> stopped() { return tl::unexpected(EtcdError{ErrorCode::kCancelled, "stopping"}); }

double secondsSince(BootClock::time_point start) {
  return std::chrono::duration<double>(BootClock::now() - start).count();
}

}  // namespace

Mirror::Mirror(Context& context, Options options, records::RecordStore& store, OwnKey& own_key,
               Confirmation& confirmation)
    : context_(context),
      options_(std::move(options)),
      store_(store),
      replica_(store, own_key, context.counters, context.log,
               {.max_names = options_.max_names, .shared_address = options_.shared_address}),
      confirmation_(confirmation) {
  confirmation_.onPresent([this](BootClock::time_point as_of) { confirmed(as_of); });
}

Task<void> Mirror::run() {
  while (!context_.lifetime.stopping()) {
    const bool loaded = co_await load();
    if (loaded) co_await follow();
  }
}

// --- snapshot ---

// Takes a snapshot, however long etcd is away. False: stopping.
Task<bool> Mirror::load() {
  caught_up_ = false;
  Backoff backoff(context_.jitter, 100ms, 5s);
  while (true) {
    const EtcdResult<int64_t> revision = co_await readSnapshot();
    if (context_.lifetime.stopping()) co_return false;
    if (revision) break;
    context_.trouble.failed(kLoading, revision.error());
    const std::chrono::nanoseconds delay = backoff.next();
    co_await context_.lifetime.pause(delay);
  }
  context_.trouble.succeeded(kLoading);
  caught_up_ = true;
  loaded_ = true;
  confirmation_.loaded(resumeFloor(), cluster_id_);
  confirmed(snapshot_at_);  // its revision came from a linearizable read after that
  co_return true;
}

Task<EtcdResult<int64_t>> Mirror::readSnapshot() {
  const BootClock::time_point started = BootClock::now();
  const EtcdResult<Present> now = co_await present();
  if (!now) co_return tl::unexpected(now.error());
  snapshot_at_ = started;
  const int64_t revision = now->revision;
  const bool restarted = isOtherStore(*now) || other_history_;
  if (other_history_) {
    context_.log.warning("etcd tells another history than before, up to revision {}: the store was restored", revision);
  } else if (restarted && now->cluster_id != cluster_id_) {
    context_.log.warning("etcd is another cluster now, {:x} instead of {:x}", now->cluster_id, cluster_id_);
  } else if (restarted) {
    context_.log.warning("etcd's revision went back from {}, it is {} now: the store was lost or restored", highest_,
                         revision);
  }
  const uint64_t generation = ++generation_;
  using History = Replica::History;
  replica_.beginSnapshot(restarted ? History::kRestarted : restored_ ? History::kUnknown : History::kSame);
  // What is in the table already needs no reading, unless its revisions say nothing.
  Present at{revision, now->cluster_id};
  EtcdResult<bool> by_keys = false;
  if (loaded_ && !restarted && !restored_) by_keys = co_await readDifferences(at, generation, 0ns);
  if (!by_keys) {
    if (!ended(generation)) replica_.abandonSnapshot();
    co_return tl::unexpected(std::move(by_keys.error()));
  }
  if (!*by_keys) {
    const EtcdResult<int64_t> read = co_await readPages(at, generation);
    if (!read) co_return tl::unexpected(read.error());
  }
  const Replica::Difference difference = replica_.endSnapshot(revision);
  context_.counters.snapshots.add();
  other_history_ = difference.other_history && !restarted;
  if (other_history_) co_return tl::unexpected(EtcdError{ErrorCode::kOther, "its history is not the one before"});
  if (restarted) context_.counters.restarts_of_store.add();
  restored_ = false;
  must_reload_ = false;
  logLoaded(difference, revision, started);
  highest_ = revision;
  resume_.assign(options_.ranges.size(), revision);
  cluster_id_ = now->cluster_id;
  co_return revision;
}

// Into the replica, page by page, until `generation` ends.
Task<EtcdResult<int64_t>> Mirror::readPages(Present at, uint64_t generation) {
  auto take = [this, generation](std::vector<KeyValue>&& page) {
    if (ended(generation)) return false;
    replica_.addToSnapshot(page);
    return true;
  };
  const etcd::RangeOptions options{.revision = at.revision, .cluster_id = at.cluster_id};
  auto reading = readNamePages(context_.client, options_.ranges, options, options_.page_size, std::move(take));
  const EtcdResult<int64_t> read = co_await reading;
  if (ended(generation)) co_return stopped();
  if (!read) replica_.abandonSnapshot();
  co_return read;
}

// Of the store, by a linearizable read: not a lagging member's.
Task<EtcdResult<Mirror::Present>> Mirror::present() {
  etcd::KeyRange range = etcd::KeyRange::single(options_.ranges.front().begin);
  etcd::RangeOptions options{.limit = 1, .keys_only = true};
  const EtcdResult<etcd::RangeResult> answer = co_await context_.client.range(std::move(range), options);
  if (context_.lifetime.stopping()) co_return stopped();
  if (!answer) co_return tl::unexpected(answer.error());
  co_return Present{answer->revision, answer->cluster_id};
}

bool Mirror::isOtherStore(const Present& present) const {
  return confirmation_.isOtherStore() || present.revision < highest_ ||
         (cluster_id_ != 0 && present.cluster_id != cluster_id_);
}

void Mirror::logLoaded(const Replica::Difference& difference, int64_t revision, BootClock::time_point started) {
  if (!loaded_) {
    context_.log.info("{} names at revision {} in {:.1f} s", replica_.size(), revision, secondsSince(started));
    return;
  }
  context_.log.info("read all names again at revision {} in {:.1f} s: {} names, {} added or changed, {} removed{}{}",
                    revision, secondsSince(started), replica_.size(), difference.added_or_changed, difference.removed,
                    difference.names.empty() ? "" : ": ", fmt::join(difference.names, " "));
}

// --- watch ---

// Watches from the snapshot on, over as many streams as it takes. Returns when only a new snapshot helps.
Task<void> Mirror::follow() {
  Backoff backoff(context_.jitter, 50ms, 5s);
  bool resumed = false;
  while (!context_.lifetime.stopping()) {
    EtcdResult<Next> next = Next::kWatchAgain;
    if (resumed) next = co_await prepareWatch();
    if (next && *next == Next::kSnapshot) co_return;
    EtcdError error;
    if (next) {
      EtcdResult<WatchStream> stream = co_await openWatch();
      const BootClock::time_point opened = BootClock::now();
      if (stream) {
        error = co_await consume(*stream);
        if (BootClock::now() - opened > 10s) backoff.reset();
      } else {
        error = std::move(stream.error());
      }
    } else {
      error = std::move(next.error());
    }
    if (context_.lifetime.stopping()) co_return;
    caught_up_ = false;
    resumed = true;
    after_break_ = true;
    if (other_history_) co_return;
    context_.counters.watch_breaks.add();
    if (must_reload_) co_return;
    if (error.code == ErrorCode::kCompacted) {
      context_.log.warning("etcd has compacted what came after revision {}", resumeFloor());
      co_return;
    }
    if (error.code == ErrorCode::kDisordered) {
      context_.counters.watch_disorders.add();
      context_.log.warning("the watch is not to be trusted: {}", error.message);
      co_return;
    }
    context_.trouble.failed(kWatching, error);
    const std::chrono::nanoseconds delay = backoff.next();
    co_await context_.lifetime.pause(delay);
  }
}

// After a break: is it still the same history, and how far is the present?
Task<EtcdResult<Mirror::Next>> Mirror::prepareWatch() {
  const EtcdResult<Present> now = co_await present();
  if (!now) co_return tl::unexpected(now.error());
  if (isOtherStore(*now)) co_return Next::kSnapshot;
  catch_up_to_ = highest_ = now->revision;
  if (resumeFloor() == catch_up_to_) caught_up_ = true;
  co_return Next::kWatchAgain;
}

Task<EtcdResult<WatchStream>> Mirror::openWatch() {
  std::vector<etcd::WatchRange> ranges;
  for (size_t i = 0; i < resume_.size(); ++i) ranges.push_back({options_.ranges[i], resume_[i] + 1});
  EtcdResult<WatchStream> stream = co_await context_.client.watch(std::move(ranges));
  if (!stream) co_return tl::unexpected(std::move(stream.error()));
  const int64_t newest = *std::max_element(resume_.begin(), resume_.end());
  // The store went back or is another one, or this member lags behind: prepareWatch() finds out.
  if (stream->createdRevision() < newest || stream->clusterId() != cluster_id_)
    co_return tl::unexpected(EtcdError{ErrorCode::kOther, "a watch from the future of the store, or of another one"});
  suspect_ = false;
  repairWithin(kFirstRepair);
  confirmation_.watchOpened();
  co_return std::move(stream);
}

// The client may have gone back to its first endpoint (Client::returnHome()), so that the members share the nodes. The
// watch follows; the old one ends only when the new one is there, and what it has not told the new one tells again.
Task<void> Mirror::followClient(WatchStream& stream) {
  constexpr std::chrono::nanoseconds kPause = 5s;
  if (BootClock::now() < next_move_) co_return;
  next_move_ = BootClock::now() + kPause;
  EtcdResult<WatchStream> moved = co_await openWatch();
  if (moved && !context_.lifetime.stopping()) stream = std::move(*moved);
}

Task<EtcdError> Mirror::consume(WatchStream& stream) {
  // The stream asks for a sign of life at half of this: so a silent member is left within 3 s, one that stands still
  // for a second is not.
  const std::chrono::nanoseconds silence =
      std::clamp<std::chrono::nanoseconds>(options_.stale_after / 2, 500ms, 2700ms);
  while (true) {
    EtcdResult<WatchBatch> batch = co_await stream.next(silence);
    if (context_.lifetime.stopping()) co_return EtcdError{ErrorCode::kCancelled, "stopping"};
    if (!batch) co_return std::move(batch.error());
    context_.trouble.succeeded(kWatching);
    replica_.apply(batch->events);
    learn(*batch);
    if (confirmation_.behind()) {
      constexpr std::string_view kBehind = "its watch does not show the present";
      context_.counters.watches_behind.add();
      stream.leave(std::string(kBehind));
      co_return EtcdError{ErrorCode::kUnavailable, std::string(kBehind)};
    }
    if (other_history_) co_return EtcdError{ErrorCode::kOther, "the store was restored"};
    if (suspect_) {
      stream.leave("its watch has lost changes");
      co_return EtcdError{ErrorCode::kOther, "the watch has lost changes"};
    }
    if (!stream.isAtCurrentEndpoint()) co_await followClient(stream);
    if (context_.lifetime.stopping()) co_return EtcdError{ErrorCode::kCancelled, "stopping"};
  }
}

int64_t Mirror::resumeFloor() const { return *std::min_element(resume_.begin(), resume_.end()); }

// Everything up to `revision` is in the table.
void Mirror::passed(int64_t revision) {
  for (int64_t& resume : resume_) resume = std::max(resume, revision);
}

void Mirror::learn(const WatchBatch& batch) {
  const bool progress = batch.events.empty();
  resume_[batch.range] = std::max(resume_[batch.range], batch.resume_revision - 1);
  highest_ = std::max(highest_, batch.revision);
  // etcd tells of progress only when the watch has been sent everything.
  if (progress || resumeFloor() >= catch_up_to_) caught_up_ = true;
  for (const etcd::WatchEvent& event : batch.events) {
    if (isBeatKey(event.kv.key)) confirmation_.sawBeat(event.kv.key, event.kv.mod_revision);
  }
  confirmation_.delivered(resumeFloor());
  if (progress) confirmation_.progressed(batch.revision);
}

// --- comparison ---

// All nodes of a cluster together read the square of their number: they take their time by it.
double Mirror::stretch() const {
  const double nodes = std::min(static_cast<double>(options_.limit), static_cast<double>(replica_.size()));
  return std::max(1.0, nodes / kNodesPerInterval);
}

// The next comparison, unless an earlier one is due already.
void Mirror::repairWithin(std::chrono::nanoseconds mean) {
  // A short interval is somebody's wish (or a test's).
  const std::chrono::nanoseconds wanted = times(std::min(mean, options_.repair_interval), stretch());
  next_repair_ = std::min(next_repair_, BootClock::now() + context_.jitter.around(wanted, 0.5));
}

Task<void> Mirror::repairRegularly() {
  constexpr std::chrono::nanoseconds kLook = 1s;  // a new watch makes the next comparison an early one
  while (true) {
    const std::chrono::nanoseconds left = next_repair_ - BootClock::now();
    if (left > 0ns || !caught_up_) {
      const std::chrono::nanoseconds delay = left > 0ns ? std::min(left, kLook) : 100ms;
      const bool go_on = co_await context_.lifetime.pause(delay);
      if (!go_on) co_return;
      continue;
    }
    const bool repaired = co_await repair();
    if (context_.lifetime.stopping()) co_return;
    if (!repaired) {
      next_repair_ = BootClock::time_point::max();
      repairWithin(kFirstRepair);
      continue;
    }
    // With a million names a comparison takes seconds of both ends: keep it under a twentieth of the time.
    const std::chrono::nanoseconds interval =
        std::max(times(options_.repair_interval, stretch()), 20 * last_repair_took_);
    next_repair_ = BootClock::now() + context_.jitter.around(interval, 0.25);
  }
}

// Compares the table with etcd as a quorum has it. The watch goes on meanwhile; Replica keeps the two apart. False:
// nothing was compared.
Task<bool> Mirror::repair() {
  const uint64_t generation = ++generation_;
  replica_.beginSnapshot(Replica::History::kSame);
  Present at{0, cluster_id_};
  const EtcdResult<bool> read = co_await readDifferences(at, generation, options_.repair_patience);
  // A full load may have taken over. If what was read is compacted by now, the next comparison will do.
  if (ended(generation)) co_return false;
  if (!read || !*read) {
    replica_.abandonSnapshot();
    if (read) suspect_ = must_reload_ = true;
    co_return false;
  }
  const Replica::Difference difference = replica_.endSnapshot(at.revision);
  context_.counters.repairs.add();
  after_break_ = false;
  passed(at.revision);
  confirmation_.delivered(resumeFloor());
  other_history_ = other_history_ || difference.other_history;
  if (difference.total() == 0) co_return true;
  suspect_ = true;
  context_.counters.repaired.add(difference.total());
  context_.log.warning("the watch had lost {} changes, found by comparison at revision {}: {}", difference.total(),
                       at.revision, fmt::join(difference.names, " "));
  co_return true;
}

// Into the snapshot that was begun: the keys at `at` (revision 0: the newest, by a linearizable read, which is filled
// in), and after `patience` the values of those that the table does not have by then. False: they are too many, nothing
// was read of them.
Task<EtcdResult<bool>> Mirror::readDifferences(Present& at, uint64_t generation, std::chrono::nanoseconds patience) {
  const BootClock::time_point started = BootClock::now();
  EtcdResult<std::vector<KeyValue>> wanted = co_await readKeys(at, generation);
  if (!wanted) co_return tl::unexpected(std::move(wanted.error()));
  last_repair_took_ = BootClock::now() - started;
  if (wanted->size() > kMostDifferences) co_return false;
  if (patience > 0ns) co_await context_.lifetime.pause(patience);
  if (ended(generation)) co_return stopped();
  EtcdResult<bool> read = co_await readValues(std::move(*wanted), generation, 0);
  co_return read;
}

// The keys whose values are wanted. After a break of the watch those with the newest values too: a store that was
// restored and has gone on since may have the same keys at the same revisions, with other values.
Task<EtcdResult<std::vector<KeyValue>>> Mirror::readKeys(Present& at, uint64_t generation) {
  const auto newer = [](const KeyValue& a, const KeyValue& b) { return a.mod_revision > b.mod_revision; };
  std::vector<KeyValue> wanted;
  std::vector<KeyValue> newest;  // a heap, with the oldest of them on top
  auto take = [&, this](std::vector<KeyValue>&& page) {
    if (ended(generation)) return false;
    for (const KeyValue& kv : page) {
      if (!after_break_ || isPath(kv.key)) continue;
      if (newest.size() == kNewestChecked && kv.mod_revision < newest.front().mod_revision) continue;
      newest.push_back(kv);
      std::push_heap(newest.begin(), newest.end(), newer);
      if (newest.size() <= kNewestChecked) continue;
      std::pop_heap(newest.begin(), newest.end(), newer);
      newest.pop_back();
    }
    std::vector<KeyValue> differ = replica_.addKeysToSnapshot(std::move(page));
    std::move(differ.begin(), differ.end(), std::back_inserter(wanted));
    return wanted.size() <= kMostDifferences;
  };
  const etcd::RangeOptions options{.revision = at.revision, .keys_only = true, .cluster_id = at.cluster_id};
  auto reading = readNamePages(context_.client, options_.ranges, options, options_.page_size, std::move(take));
  const EtcdResult<int64_t> read = co_await reading;
  if (ended(generation)) co_return stopped();
  if (!read) co_return tl::unexpected(read.error());
  at.revision = *read;
  EtcdResult<bool> checked = co_await readValues(std::move(newest), generation, at.revision);
  if (!checked) co_return tl::unexpected(std::move(checked.error()));
  co_return std::move(wanted);
}

// At `revision`; 0: at the newest, of those only that are needed still. A key that is gone by then is the watch's to
// tell, and the next comparison's.
Task<EtcdResult<bool>> Mirror::readValues(std::vector<KeyValue> wanted, uint64_t generation, int64_t revision) {
  for (size_t next = 0; next < wanted.size();) {
    etcd::TxnRequest request;
    for (; next < wanted.size() && request.success.size() < kValuesPerRequest; ++next) {
      if (revision == 0 && !replica_.needs(wanted[next])) continue;
      request.success.emplace_back(
          etcd::RangeOp{etcd::KeyRange::single(std::move(wanted[next].key)), {.revision = revision}});
    }
    if (request.success.empty()) break;
    EtcdResult<etcd::TxnResult> answer = co_await context_.client.txn(std::move(request));
    if (ended(generation)) co_return stopped();
    if (!answer) co_return tl::unexpected(std::move(answer.error()));
    for (etcd::OpResult& result : answer->results) {
      if (const auto* found = std::get_if<etcd::RangeResult>(&result)) replica_.addToSnapshot(found->kvs);
    }
  }
  co_return true;
}

// --- freshness ---

// The store has the deadline for itself: it counts from the moment on when this process goes on after a pause, before
// anything here runs.
void Mirror::confirmed(BootClock::time_point as_of) {
  if (!loaded_) return;
  current_at_ = std::max(current_at_, as_of);
  const BootClock::time_point deadline = current_at_ + options_.stale_after;
  if (BootClock::now() >= deadline) return;
  const bool was_old = isOld(store_.freshness());
  store_.setFreshUntil(deadline);
  fresh_ = true;
  if (was_old) context_.log.info("names are current again");
  if (options_.on_freshness) options_.on_freshness();
}

Task<void> Mirror::watchFreshness() {
  while (true) {
    std::chrono::nanoseconds left = current_at_ + options_.stale_after - BootClock::now();
    if (fresh_ && left <= 0ns) {
      context_.log.warning("names are stale: nothing has confirmed them for {:.0f} s", secondsSince(current_at_));
      fresh_ = false;
      store_.setFreshness(Freshness::kStale);
      if (options_.on_freshness) options_.on_freshness();
    }
    if (left <= 0ns) left = options_.stale_after / 10;
    const bool go_on = co_await context_.lifetime.pause(left);
    if (!go_on) co_return;
  }
}

}  // namespace idetcd::cluster
