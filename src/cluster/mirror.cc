#include "cluster/mirror.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cluster/keyspace.h"

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

tl::unexpected<EtcdError> stopped() { return tl::unexpected(EtcdError{ErrorCode::kCancelled, "stopping"}); }

double secondsSince(BootClock::time_point start) {
  return std::chrono::duration<double>(BootClock::now() - start).count();
}

}  // namespace

Mirror::Mirror(Context& context, Options options, records::RecordStore& store, OwnKey& own_key)
    : context_(context),
      options_(std::move(options)),
      store_(store),
      replica_(store, own_key, context.counters, context.log,
               {.max_names = options_.max_names, .shared_address = options_.shared_address}) {}

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
  heardCurrent();
  co_return true;
}

Task<EtcdResult<int64_t>> Mirror::readSnapshot() {
  const BootClock::time_point started = BootClock::now();
  const EtcdResult<Present> now = co_await present();
  if (!now) co_return tl::unexpected(now.error());
  const int64_t revision = now->revision;
  const bool restarted = isOtherStore(*now) || other_history_;
  if (other_history_) {
    context_.log.warning("etcd tells another history than before, up to revision {}: the store was restored", revision);
  } else if (restarted && now->cluster_id != cluster_id_) {
    context_.log.warning("etcd is another cluster now, {:x} instead of {:x}", now->cluster_id, cluster_id_);
  } else if (restarted) {
    context_.log.warning("etcd's revision went back from {} to {}: the store was lost or restored", highest_, revision);
  }
  const uint64_t generation = ++generation_;
  using History = Replica::History;
  replica_.beginSnapshot(restarted ? History::kRestarted : restored_ ? History::kUnknown : History::kSame);
  const EtcdResult<int64_t> read = co_await readPages({revision, now->cluster_id}, generation);
  if (!read) co_return tl::unexpected(read.error());
  const Replica::Difference difference = replica_.endSnapshot(revision);
  context_.counters.snapshots.add();
  other_history_ = difference.other_history && !restarted;
  if (other_history_) co_return tl::unexpected(EtcdError{ErrorCode::kOther, "its history is not the one before"});
  if (restarted) context_.counters.restarts_of_store.add();
  restored_ = false;
  logLoaded(difference, revision, started);
  resume_ = synced_ = highest_ = revision;
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
  etcd::KeyRange range = watchedRange();
  etcd::RangeOptions options{.revision = at.revision, .cluster_id = at.cluster_id};
  const EtcdResult<int64_t> read =
      co_await etcd::rangePaginated(context_.client, std::move(range), options, options_.page_size, std::move(take));
  if (ended(generation)) co_return stopped();
  if (!read) replica_.abandonSnapshot();
  co_return read;
}

// Of the store, by a linearizable read: not a lagging member's.
Task<EtcdResult<Mirror::Present>> Mirror::present() {
  etcd::KeyRange range = watchedRange();
  etcd::RangeOptions options{.limit = 1, .keys_only = true};
  const EtcdResult<etcd::RangeResult> answer = co_await context_.client.range(std::move(range), options);
  if (context_.lifetime.stopping()) co_return stopped();
  if (!answer) co_return tl::unexpected(answer.error());
  co_return Present{answer->revision, answer->cluster_id};
}

bool Mirror::isOtherStore(const Present& present) const {
  return present.revision < highest_ || (cluster_id_ != 0 && present.cluster_id != cluster_id_);
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
      etcd::KeyRange range = watchedRange();
      EtcdResult<WatchStream> stream = co_await context_.client.watch(std::move(range), resume_ + 1);
      const BootClock::time_point opened = BootClock::now();
      if (stream && (stream->createdRevision() < resume_ || stream->clusterId() != cluster_id_)) {
        // The store went back or is another one, or this member lags behind: prepareWatch() finds out.
        error = {ErrorCode::kOther, "a watch from the future of the store, or of another one"};
      } else if (stream) {
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
    if (other_history_) co_return;
    context_.counters.watch_breaks.add();
    if (error.code == ErrorCode::kCompacted) {
      context_.log.warning("etcd has compacted what came after revision {}", resume_);
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
  if (resume_ == catch_up_to_) {
    caught_up_ = true;
    heardCurrent();
  }
  co_return Next::kWatchAgain;
}

Task<EtcdError> Mirror::consume(WatchStream& stream) {
  // The stream asks for a sign of life at half of this, so the present is confirmed several times within stale_after.
  const std::chrono::nanoseconds silence = std::max<std::chrono::nanoseconds>(options_.stale_after / 2, 500ms);
  const std::chrono::nanoseconds silence_when_behind = std::min<std::chrono::nanoseconds>(silence, 4s);
  while (true) {
    EtcdResult<WatchBatch> batch = co_await stream.next(caught_up_ ? silence : silence_when_behind);
    if (context_.lifetime.stopping()) co_return EtcdError{ErrorCode::kCancelled, "stopping"};
    if (!batch) co_return std::move(batch.error());
    context_.trouble.succeeded(kWatching);
    replica_.apply(batch->events);
    learn(*batch);
    if (other_history_) co_return EtcdError{ErrorCode::kOther, "the store was restored"};
  }
}

void Mirror::learn(const WatchBatch& batch) {
  const bool progress = batch.events.empty();
  resume_ = std::max(resume_, batch.resume_revision - 1);
  synced_ = std::max(synced_, progress ? batch.revision : resume_);
  highest_ = std::max(highest_, batch.revision);
  // etcd tells of progress only when the watch has been sent everything.
  if (progress || resume_ >= catch_up_to_) caught_up_ = true;
  if (caught_up_) heardCurrent();
}

// --- comparison ---

Task<void> Mirror::repairRegularly() {
  while (true) {
    // With a million names a comparison takes seconds of both ends: keep it under a twentieth of the time.
    const std::chrono::nanoseconds interval = std::max(options_.repair_interval, 20 * last_repair_took_);
    const std::chrono::nanoseconds delay = context_.jitter.around(interval, 0.25);
    const bool go_on = co_await context_.lifetime.pause(delay);
    if (!go_on) co_return;
    if (caught_up_) co_await repair();
  }
}

// Compares the table with etcd at the revision that the watch has shown: whatever differs, the watch has lost. The
// watch goes on meanwhile; Replica keeps the two apart.
Task<void> Mirror::repair() {
  const BootClock::time_point started = BootClock::now();
  const int64_t revision = synced_;
  const uint64_t generation = ++generation_;
  replica_.beginSnapshot(Replica::History::kSame);
  const EtcdResult<int64_t> read = co_await readPages({revision, cluster_id_}, generation);
  // A full load may have taken over, and the revision may be compacted by now: the next comparison will do.
  if (ended(generation) || !read) co_return;
  const Replica::Difference difference = replica_.endSnapshot(revision);
  last_repair_took_ = BootClock::now() - started;
  context_.counters.repairs.add();
  resume_ = std::max(resume_, revision);
  other_history_ = other_history_ || difference.other_history;
  if (difference.total() == 0) co_return;
  context_.counters.repaired.add(difference.total());
  context_.log.warning("the watch had lost {} changes, found by comparison at revision {}: {}", difference.total(),
                       revision, fmt::join(difference.names, " "));
}

// --- freshness ---

void Mirror::heardCurrent() {
  current_at_ = BootClock::now();
  if (store_.freshness() == Freshness::kFresh) return;
  if (isOld(store_.freshness())) context_.log.info("names are current again");
  setFreshness(Freshness::kFresh);
}

void Mirror::setFreshness(Freshness freshness) {
  store_.setFreshness(freshness);
  if (options_.on_freshness) options_.on_freshness();
}

Task<void> Mirror::watchFreshness() {
  while (true) {
    std::chrono::nanoseconds left = current_at_ + options_.stale_after - BootClock::now();
    if (loaded_ && left <= 0ns && store_.freshness() == Freshness::kFresh) {
      context_.log.warning("names are stale: nothing current from etcd for {:.0f} s", secondsSince(current_at_));
      setFreshness(Freshness::kStale);
    }
    if (left <= 0ns) left = options_.stale_after / 10;
    const bool go_on = co_await context_.lifetime.pause(left);
    if (!go_on) co_return;
  }
}

}  // namespace idetcd::cluster
