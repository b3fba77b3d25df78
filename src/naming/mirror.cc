#include "naming/mirror.h"

#include <malloc.h>

#include <fmt/ranges.h>

#include "naming/name_pages.h"

namespace idetcd::naming {
namespace {

using records::Freshness;
using runtime::Task;
using store::KeyValue;
using store::StoreError;
using store::StoreResult;
using store::WatchBatch;
using store::WatchStream;
using namespace std::chrono_literals;

constexpr std::string_view kLoading = "reading the names";
constexpr std::string_view kWatching = "watching the names";

// A comparison soon after a watch was opened shows what may have been lost between this one and the one before.
constexpr std::chrono::nanoseconds kFirstComparison = 2s;
// While no endpoint can be connected to, which costs etcd nothing: when one is back, names are current within seconds.
constexpr std::chrono::nanoseconds kAwayPause = 1s;
constexpr size_t kValuesPerRequest = 100;    // etcd takes 128 operations in a transaction
constexpr size_t kMostDifferences = 10'000;  // beyond, all is read
constexpr size_t kNewestChecked = 64;
constexpr size_t kManyNames = 10'000;
// All keys of so many names are read once in reconcile_interval: 45 bytes each, 10 bytes a second.
constexpr double kNamesPerInterval = 13;
constexpr std::chrono::nanoseconds kLongestInterval = 24h;
// A crowd of nodes reads the names so much after their claims, for each name. Of these no node waits longer.
constexpr std::chrono::nanoseconds kTimeOfAName = 5ms;
constexpr std::chrono::nanoseconds kLongestTurn = 60s;
// From a node's ticket on: its name, the leases of a process before; and of another node its ticket, name and these.
constexpr int64_t kMostWritesAlone = 5;
// A cluster of up to so many nodes compares at reconcile_interval.
constexpr double kNodesPerInterval = 500;

// A member that stood still may answer with less than the watch had shown when it was asked
// (https://github.com/etcd-io/etcd/issues/20418). So may a store that was set back meanwhile.
StoreError staleRead() { return {ErrorCode::kOther, "the answer is older than what was seen before"}; }

std::chrono::nanoseconds times(std::chrono::nanoseconds duration, double factor) {
  return std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(duration.count()) * factor));
}

}  // namespace

Mirror::Mirror(Context& context, Options options, store::Source& names, records::RecordStore& store,
               OwnKeyObserver& own_key, Confirmation& confirmation)
    : context_(context),
      options_(std::move(options)),
      names_(names),
      store_(store),
      own_key_(own_key),
      claim_answered_(context.scheduler),
      claim_settled_(context.scheduler),
      replica_(store, own_key, context.counters, context.scheduler, context.log,
               {.max_names = options_.max_names, .shared_address = options_.shared_address, .generation = options_.generation}),
      confirmation_(confirmation),
      lets_others_claim_(options_.most_at_once && options_.limit > *options_.most_at_once) {
  confirmation_.onCurrent([this](BootClock::time_point as_of) { confirmed(as_of); });
  confirmation_.onDoubt([this] { doubtWatch(); });
  own_key_.onAnswer([this] { claim_answered_.set(); });
  own_key_.onSettled([this] { claim_settled_.set(); });
}

double Mirror::secondsSince(BootClock::time_point start) const {
  return std::chrono::duration<double>(context_.now() - start).count();
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
  Backoff backoff(context_.jitter, 100ms, 5s);
  while (true) {
    if (lets_others_claim_) co_await letOthersClaim();
    if (context_.lifetime.stopping()) co_return false;
    const StoreResult<int64_t> revision = co_await readSnapshot();
    if (context_.lifetime.stopping()) co_return false;
    if (revision) break;
    context_.trouble.failed(kLoading, revision.error());
    const std::chrono::nanoseconds delay = pauseAfter(revision.error(), backoff);
    co_await context_.lifetime.pause(delay);
  }
  context_.trouble.succeeded(kLoading);
  lets_others_claim_ = false;
  table_ = Table::kLoaded;
  context_.counters.names.set(static_cast<double>(replica_.size()));
  confirmation_.loaded(resumeFloor(), cluster_id_);
  confirmed(snapshot_at_);  // its revision came from a linearizable read after that
  co_return true;
}

// Where many nodes start at once, each would be sent every name that another takes, beside all that are there, and etcd
// would send that before it answers the claims. The reads of the own key stand in for the watch meanwhile.
Task<void> Mirror::letOthersClaim() {
  const bool settled = co_await claim_settled_.wait(options_.stale_after / 2);
  if (!settled || context_.lifetime.stopping()) co_return;
  int64_t names = 0;
  int64_t revision = 0;
  for (size_t i = 0; i < options_.ranges.size(); ++i) {
    store::KeyRange range = options_.ranges[i];
    const StoreResult<store::RangeResult> answer =
        co_await context_.store.range(std::move(range), {.count_only = true});
    if (!answer || context_.lifetime.stopping()) co_return;
    names += answer->count;
    revision = answer->revision;
  }
  lets_others_claim_ = false;
  names = std::min(names, options_.limit);
  const int64_t ticket = own_key_.firstTicket().value_or(0);
  const bool is_crowd = ticket > 0 && revision > ticket + kMostWritesAlone;
  if (!is_crowd || names <= *options_.most_at_once) co_return;
  const std::chrono::nanoseconds longest = std::min(names * kTimeOfAName, kLongestTurn);
  co_await context_.lifetime.pause(context_.jitter.around(longest / 2, 1.0));
}

Task<StoreResult<int64_t>> Mirror::readSnapshot() {
  const BootClock::time_point started = context_.now();
  const StoreResult<StoreState> now = co_await readState();
  if (!now) co_return tl::unexpected(now.error());
  snapshot_at_ = started;
  const int64_t revision = now->revision;
  const bool was_restored = trust_ == Trust::kOtherHistory;
  const bool is_other = was_restored || isOtherStore(*now);
  if (is_other) logOtherStore(*now, was_restored);
  // Before anything is read: what is newer may be compacted away by the time when all is.
  std::vector<int64_t> from(options_.ranges.size(), revision);
  // Where there is no watch, the next attempt does without.
  StoreResult<std::unique_ptr<WatchStream>> watch;
  if (std::exchange(opens_watch_first_, true)) watch = co_await openWatch(from, now->cluster_id);
  if (context_.lifetime.stopping()) co_return stopped();
  opens_watch_first_ = watch.has_value();
  if (!watch) co_return tl::unexpected(std::move(watch.error()));
  const uint64_t generation = ++generation_;
  using History = Replica::History;
  replica_.beginSnapshot(is_other ? History::kOther : table_ == Table::kFromFile ? History::kUnknown : History::kSame);
  const StoreResult<void> read = co_await readAll(*now, generation, is_other);
  if (!read) co_return tl::unexpected(read.error());
  const Replica::Difference difference = replica_.endSnapshot(revision);
  context_.counters.snapshots.add();
  planWholeComparison();
  trust_ = difference.other_history && !is_other ? Trust::kOtherHistory : Trust::kWhole;
  if (trust_ == Trust::kOtherHistory)
    co_return tl::unexpected(StoreError{ErrorCode::kOther, "its history is not the one before"});
  if (is_other) context_.counters.restarts_of_store.add();
  if (is_other && options_.times != nullptr) options_.times->clear();
  noteRevision(revision);
  logLoaded(difference, revision, started);
  highest_ = std::max(revision, replica_.newestRevision());  // later pages may be of a later one
  resume_ = std::move(from);
  cluster_id_ = now->cluster_id;
  first_watch_ = std::move(*watch);
  co_return revision;
}

void Mirror::logOtherStore(const StoreState& now, bool was_restored) const {
  if (was_restored) {
    context_.log.warning("etcd tells another history than before, up to revision {}: the store was restored",
                         now.revision);
  } else if (now.cluster_id != cluster_id_) {
    context_.log.warning("etcd is another cluster now, {:x} instead of {:x}", now.cluster_id, cluster_id_);
  } else {
    context_.log.warning("etcd's revision went back from {}, it is {} now: the store was lost or restored", highest_,
                         now.revision);
  }
}

// Into the replica, until `generation` ends. What is in the table already needs no reading, unless its revisions say
// nothing: those of another store.
Task<StoreResult<void>> Mirror::readAll(StoreState at, uint64_t generation, bool is_other) {
  if (table_ == Table::kLoaded && !is_other) {
    const StoreResult<bool> by_keys = co_await readDifferences(at, generation, 0ns);
    if (!by_keys && !ended(generation)) replica_.abandonSnapshot();
    if (!by_keys) co_return tl::unexpected(by_keys.error());
    if (*by_keys) co_return StoreResult<void>();
  }
  const StoreResult<int64_t> read = co_await readPages(at, generation);
  if (!read) co_return tl::unexpected(read.error());
  giveBackPages();
  co_return StoreResult<void>();
}

// Returns the memory of the pages to the system: 17 MB for a million names.
void Mirror::giveBackPages() const {
  if (replica_.size() > kManyNames) malloc_trim(0);
}

// Into the replica, page by page, until `generation` ends.
Task<StoreResult<int64_t>> Mirror::readPages(StoreState at, uint64_t generation) {
  auto take = [this, generation](std::vector<KeyValue>&& page) {
    if (ended(generation)) return false;
    replica_.addToSnapshot(page);
    return true;
  };
  const store::RangeOptions options{.revision = at.revision, .cluster_id = at.cluster_id};
  auto reading = readNamePages(names_, options_.ranges, options, options_.page_size, std::move(take));
  const StoreResult<int64_t> read = co_await reading;
  if (ended(generation)) co_return stopped();
  if (!read) replica_.abandonSnapshot();
  co_return read;
}

// Of the store, by a linearizable read: not a lagging member's.
Task<StoreResult<Mirror::StoreState>> Mirror::readState() {
  const bool has_newest = table_ == Table::kLoaded && replica_.newestName() > 0;
  store::KeyRange range = store::KeyRange::single(has_newest ? replica_.newestKey() : options_.ranges.front().begin);
  store::RangeOptions options{.limit = 1};
  const BootClock::time_point asked = context_.now();
  const StoreResult<store::RangeResult> answer = co_await context_.store.range(std::move(range), options);
  if (context_.lifetime.stopping()) co_return stopped();
  if (!answer) co_return tl::unexpected(answer.error());
  context_.round_trip.took(asked, context_.now());
  // A store that was restored and has come as far again has another one, or none.
  if (has_newest && (answer->kvs.empty() || !replica_.agrees(answer->kvs.front()))) next_whole_comparison_ = {};
  co_return StoreState{answer->revision, answer->cluster_id};
}

bool Mirror::isOtherStore(const StoreState& state) const {
  return confirmation_.isOtherStore() || state.revision < highest_ ||
         (cluster_id_ != 0 && state.cluster_id != cluster_id_);
}

void Mirror::logLoaded(const Replica::Difference& difference, int64_t revision, BootClock::time_point started) {
  if (table_ != Table::kLoaded) {
    context_.log.info("{} names at revision {} in {:.1f} s", replica_.size(), revision, secondsSince(started));
    return;
  }
  context_.log.info("read all names again at revision {} in {:.1f} s: {} names, {} added or changed, {} removed{}{}",
                    revision, secondsSince(started), replica_.size(), difference.added_or_changed, difference.removed,
                    difference.names.empty() ? "" : ": ", fmt::join(difference.names, " "));
}

std::chrono::nanoseconds Mirror::pauseAfter(const StoreError& error, Backoff& backoff) {
  const std::chrono::nanoseconds pause = backoff.next();
  return error.sent ? pause : std::min(pause, context_.jitter.around(kAwayPause, 0.5));
}

// --- watch ---

// Watches from the snapshot on, over as many streams as it takes. Returns when only a new snapshot helps.
Task<void> Mirror::follow() {
  Backoff backoff(context_.jitter, 50ms, 5s);
  while (!context_.lifetime.stopping()) {
    StoreResult<std::unique_ptr<WatchStream>> stream = co_await openOrResume();
    if (stream && !*stream) co_return;
    StoreError error;
    if (stream) {
      const BootClock::time_point opened = context_.now();
      beginWatch();
      watch_ = watch_ == Watch::kBroken ? Watch::kReopened : Watch::kOpen;
      context_.counters.setWatch(true);
      error = co_await consume(std::move(*stream));
      open_ = nullptr;
      context_.counters.setWatch(false);
      confirmation_.watchEnded(std::exchange(was_reset_, false));
      if (context_.now() - opened > 10s) backoff.reset();
    } else {
      error = std::move(stream.error());
    }
    watch_ = Watch::kBroken;
    if (context_.lifetime.stopping() || needsSnapshot(error)) co_return;
    context_.trouble.failed(kWatching, error);
    const std::chrono::nanoseconds delay = pauseAfter(error, backoff);
    co_await context_.lifetime.pause(delay);
  }
}

// The watch that was opened before the snapshot was read, or a new one. Null: only a new snapshot helps.
Task<StoreResult<std::unique_ptr<WatchStream>>> Mirror::openOrResume() {
  if (first_watch_) co_return std::exchange(first_watch_, nullptr);
  StoreResult<std::unique_ptr<WatchStream>> stream = co_await openWatch(resume_, cluster_id_);
  const bool is_open_or_of_the_future = stream || stream.error().code == ErrorCode::kOther;
  if (!is_open_or_of_the_future) co_return std::move(stream);
  const StoreResult<bool> is_same = co_await checkHistory();
  if (!is_same) co_return tl::unexpected(is_same.error());
  if (!*is_same) co_return nullptr;
  co_return std::move(stream);
}

// After a watch has ended with `error`, or could not be opened.
bool Mirror::needsSnapshot(const StoreError& error) const {
  if (trust_ == Trust::kOtherHistory) return true;
  context_.counters.watch_breaks.add();
  if (trust_ == Trust::kReload) return true;
  if (error.code == ErrorCode::kCompacted) {
    context_.log.warning("etcd has compacted what came after revision {}", resumeFloor());
    return true;
  }
  if (error.code == ErrorCode::kDisordered) {
    context_.counters.watch_disorders.add();
    context_.log.warning("the watch is not to be trusted: {}", error.message);
    return true;
  }
  return false;
}

// Behind a new watch, before what it brings is in the table: is it still the same history? What was read before the watch
// may be of a store that was set back since, and has come as far again.
Task<StoreResult<bool>> Mirror::checkHistory() {
  const StoreResult<StoreState> now = co_await readState();
  if (!now) co_return tl::unexpected(now.error());
  if (isOtherStore(*now)) co_return false;
  highest_ = now->revision;
  co_return true;
}

// `resume`: of each range, all up to there is known.
Task<StoreResult<std::unique_ptr<WatchStream>>> Mirror::openWatch(std::vector<int64_t> resume, uint64_t cluster_id) {
  std::vector<store::WatchRange> ranges;
  for (size_t i = 0; i < resume.size(); ++i) ranges.push_back({options_.ranges[i], resume[i] + 1});
  StoreResult<std::unique_ptr<WatchStream>> stream = co_await names_.watch(std::move(ranges));
  if (context_.lifetime.stopping()) co_return stopped();
  if (!stream) co_return tl::unexpected(std::move(stream.error()));
  const int64_t newest = *std::max_element(resume.begin(), resume.end());
  // The store went back or is another one, or this member lags behind: checkHistory() tells.
  if ((*stream)->createdRevision() < newest || (*stream)->clusterId() != cluster_id)
    co_return tl::unexpected(StoreError{ErrorCode::kOther, "a watch from the future of the store, or of another one"});
  co_return std::move(stream);
}

void Mirror::beginWatch() {
  if (trust_ == Trust::kLosesChanges) trust_ = Trust::kWhole;
  ++watches_opened_;
  reconcileWithin(kFirstComparison);
  confirmation_.watchOpened(context_.now() < current_at_ + options_.stale_after);
}

// The client may have gone back to its first endpoint (Store::returnHome()), so that the members share the nodes. The
// watch follows; the old one ends only when the new one is there, and the new one repeats what it has not delivered.
Task<void> Mirror::followClient(std::unique_ptr<WatchStream>& stream) {
  constexpr std::chrono::nanoseconds kPause = 5s;
  if (context_.now() < next_move_) co_return;
  next_move_ = context_.now() + kPause;
  StoreResult<std::unique_ptr<WatchStream>> moved = co_await openWatch(resume_, cluster_id_);
  if (!moved || context_.lifetime.stopping()) co_return;
  const StoreResult<bool> is_same = co_await checkHistory();
  if (!is_same || !*is_same || context_.lifetime.stopping()) co_return;
  beginWatch();
  stream = std::move(*moved);
}

Task<StoreError> Mirror::consume(std::unique_ptr<WatchStream> stream) {
  while (true) {
    open_ = stream.get();
    StoreResult<WatchBatch> batch = co_await stream->next(silence());
    if (context_.lifetime.stopping()) co_return StoreError{ErrorCode::kCancelled, "stopping"};
    if (!batch) {
      was_reset_ = batch.error().code == ErrorCode::kUnavailable;
      co_return std::move(batch.error());
    }
    context_.trouble.succeeded(kWatching);
    co_await claimAnswered(batch->events);
    if (context_.lifetime.stopping()) co_return StoreError{ErrorCode::kCancelled, "stopping"};
    replica_.apply(batch->events);
    learn(*batch);
    if (confirmation_.behind()) {
      constexpr std::string_view kBehind = "its watch does not show the present";
      context_.counters.watches_behind.add();
      stream->leave(std::string(kBehind));
      co_return StoreError{ErrorCode::kUnavailable, std::string(kBehind)};
    }
    if (trust_ == Trust::kOtherHistory) co_return StoreError{ErrorCode::kOther, "the store was restored"};
    if (trust_ != Trust::kWhole) {
      stream->leave("its watch has lost changes");
      co_return StoreError{ErrorCode::kOther, "the watch has lost changes"};
    }
    if (!stream->isAtCurrentEndpoint()) co_await followClient(stream);
    if (context_.lifetime.stopping()) co_return StoreError{ErrorCode::kCancelled, "stopping"};
  }
}

// The stream asks for a sign of life at half of this. In a small cluster a silent member is left within 3 s, and one that
// stands still for a second is not; all nodes of a large one together ask 40 times a second. Its watch is alive as long
// as a quorum's reads confirm the table, and is asked at once if they do not, or are not answered: see doubtWatch().
std::chrono::nanoseconds Mirror::silence() const {
  constexpr double kNodesThatAskOften = 50;
  return std::min(times(2 * patience(), std::max(1.0, nodes() / kNodesThatAskOften)), 20 * options_.stale_after);
}

std::chrono::nanoseconds Mirror::patience() const {
  const std::chrono::nanoseconds least = std::clamp<std::chrono::nanoseconds>(options_.stale_after / 4, 250ms, 1350ms);
  return context_.round_trip.patience(least, options_.stale_after / 4);
}

void Mirror::doubtWatch() {
  if (open_ != nullptr) open_->doubt(patience());
}

// The watch may show this node's own claim before the claim is answered. The name becomes this node's, for whoever asks for
// its address's name, with the record that leads to it, not after that.
Task<void> Mirror::claimAnswered(const std::vector<store::WatchEvent>& events) {
  const auto is_awaited = [this](const store::WatchEvent& event) { return own_key_.awaitsAnswer(event.kv.key); };
  if (std::ranges::none_of(events, is_awaited)) co_return;
  claim_answered_.reset();
  co_await claim_answered_.wait(100ms);
}

int64_t Mirror::resumeFloor() const { return *std::min_element(resume_.begin(), resume_.end()); }

// Everything up to `revision` is in the table.
void Mirror::passed(int64_t revision) {
  for (int64_t& resume : resume_) resume = std::max(resume, revision);
}

void Mirror::noteRevision(int64_t revision) const {
  if (options_.times != nullptr) options_.times->saw(revision, context_.now());
}

void Mirror::learn(const WatchBatch& batch) {
  const bool progress = batch.events.empty();
  resume_[batch.range] = std::max(resume_[batch.range], batch.resume_revision - 1);
  highest_ = std::max(highest_, batch.revision);
  noteRevision(batch.revision);
  for (const store::WatchEvent& event : batch.events) {
    if (isBeatKey(event.kv.key)) confirmation_.sawBeat(event.kv.key, event.kv.mod_revision);
  }
  confirmation_.delivered(resumeFloor());
  if (progress) confirmation_.progressed(batch.revision);
  context_.counters.names.set(static_cast<double>(replica_.size()));
}

// --- comparison ---

double Mirror::nodes() const {
  return std::min(static_cast<double>(options_.limit), static_cast<double>(replica_.size()));
}

// All nodes of a cluster together read the square of their number: they take their time by it.
double Mirror::stretch() const { return std::max(1.0, nodes() / kNodesPerInterval); }

void Mirror::planWholeComparison() {
  const std::chrono::nanoseconds interval =
      std::min(times(options_.reconcile_interval, static_cast<double>(replica_.size()) / kNamesPerInterval),
               std::max<std::chrono::nanoseconds>(kLongestInterval, options_.reconcile_interval));
  next_whole_comparison_ = context_.now() + context_.jitter.around(interval, 0.25);
}

// The next comparison, unless an earlier one is due already.
void Mirror::reconcileWithin(std::chrono::nanoseconds mean) {
  // A short interval was chosen on purpose.
  const std::chrono::nanoseconds wanted = times(std::min(mean, options_.reconcile_interval), stretch());
  next_comparison_ = std::min(next_comparison_, context_.now() + context_.jitter.around(wanted, 0.5));
}

Task<void> Mirror::reconcileRegularly() {
  constexpr std::chrono::nanoseconds kLook = 1s;  // a new watch makes the next comparison an early one
  while (true) {
    if (open_ != nullptr && !open_->isAtCurrentEndpoint()) doubtWatch();
    const std::chrono::nanoseconds left = next_comparison_ - context_.now();
    if (left > 0ns || !isWatching()) {
      const std::chrono::nanoseconds delay = left > 0ns ? std::min(left, kLook) : 100ms;
      const bool go_on = co_await context_.lifetime.pause(delay);
      if (!go_on) co_return;
      continue;
    }
    const bool compared = co_await reconcile();
    if (context_.lifetime.stopping()) co_return;
    if (!compared) {
      next_comparison_ = BootClock::time_point::max();
      reconcileWithin(kFirstComparison);
      continue;
    }
    // With a million names a comparison takes seconds of both ends: keep it under a twentieth of the time.
    const std::chrono::nanoseconds interval =
        std::max(times(options_.reconcile_interval, stretch()), 20 * last_comparison_took_);
    next_comparison_ = context_.now() + context_.jitter.around(interval, 0.25);
  }
}

// Whether the store has as many keys as the table, none that is newer, and the newest one as the table has it. A store
// that was restored and has gone on since has another one. If something was on its way, it is asked again.
Task<bool> Mirror::agreesByNewest() {
  constexpr int kAttempts = 3;
  constexpr int64_t kMost = 100;
  // A watch that is opened meanwhile may show that all has to be compared.
  for (int attempt = 0; attempt < kAttempts && context_.now() < next_whole_comparison_; ++attempt) {
    if (attempt > 0) co_await context_.lifetime.pause(options_.settle_time);
    const uint64_t generation = generation_;
    const uint64_t watch = watches_opened_;
    const uint64_t changes = replica_.changes();
    const int64_t newest = replica_.newestName();
    const int64_t known = resumeFloor();
    int64_t keys = 0;
    bool agrees = true;
    bool has_newest = false;
    for (size_t i = 0; agrees && i < options_.ranges.size(); ++i) {
      store::KeyRange range = options_.ranges[i];
      const store::RangeOptions options{
          .limit = kMost, .min_mod_revision = newest, .keys_only = true, .cluster_id = cluster_id_};
      const StoreResult<store::RangeResult> answer = co_await context_.store.range(std::move(range), options);
      if (ended(generation)) co_return false;
      agrees = answer && !answer->more && answer->revision >= known;
      for (size_t found = 0; agrees && found < answer->kvs.size(); ++found) {
        has_newest = has_newest || (answer->kvs[found].mod_revision == newest && !isPath(answer->kvs[found].key));
        agrees = replica_.agrees(answer->kvs[found]);
      }
      keys += answer ? answer->count : 0;
    }
    surplus_ = keys - confirmation_.beatKeys() - static_cast<int64_t>(replica_.size());
    if (!agrees || !has_newest || surplus_ != other_keys_ || changes != replica_.changes() ||
        watch != watches_opened_ || context_.now() >= next_whole_comparison_) {
      continue;
    }
    context_.counters.comparisons.add();
    if (watch_ == Watch::kReopened) watch_ = Watch::kOpen;
    if (options_.generation != nullptr) options_.generation->readAgain();
    co_return true;
  }
  co_return false;
}

// Compares the table with etcd as a quorum has it. The watch goes on meanwhile; Replica keeps the two apart. False:
// nothing was compared.
Task<bool> Mirror::reconcile() {
  if (context_.now() < next_whole_comparison_) {
    const bool agrees = co_await agreesByNewest();
    if (agrees || context_.lifetime.stopping()) co_return agrees;
  }
  const uint64_t generation = ++generation_;
  const uint64_t watch = watches_opened_;
  replica_.beginSnapshot(Replica::History::kSame);
  StoreState at{0, cluster_id_};
  const StoreResult<bool> read = co_await readDifferences(at, generation, options_.settle_time);
  // A full load may have taken over. If what was read is compacted by now, the next comparison will do.
  if (ended(generation)) co_return false;
  // What was read before this watch may be of a store that was set back since.
  if (!read || !*read || watches_opened_ != watch) {
    replica_.abandonSnapshot();
    if (read && !*read) distrust(Trust::kReload);
    co_return false;
  }
  const Replica::Difference difference = replica_.endSnapshot(at.revision);
  context_.counters.comparisons.add();
  planWholeComparison();
  if (!difference.lacks_changes) {
    if (watch_ == Watch::kReopened) watch_ = Watch::kOpen;
    passed(at.revision);
    confirmation_.delivered(resumeFloor());
  }
  if (difference.other_history) distrust(Trust::kOtherHistory);
  if (difference.total() == 0) other_keys_ = std::max<int64_t>(surplus_, 0);
  if (difference.total() == 0) co_return !difference.lacks_changes;
  distrust(Trust::kLosesChanges);
  if (options_.on_lost) options_.on_lost();
  context_.counters.reconciled.add(difference.total());
  context_.log.warning("the watch had lost {} changes, found by comparison at revision {}: {}", difference.total(),
                       at.revision, fmt::join(difference.names, " "));
  co_return !difference.lacks_changes;
}

// Into the snapshot that was begun: the keys at `at` (revision 0: the newest, by a linearizable read, which is filled
// in), and after `settle_time` the values of those that the table does not have by then. False: they are too many,
// nothing was read of them.
Task<StoreResult<bool>> Mirror::readDifferences(StoreState& at, uint64_t generation,
                                                std::chrono::nanoseconds settle_time) {
  const BootClock::time_point started = context_.now();
  StoreResult<std::vector<KeyValue>> wanted = co_await readKeys(at, generation);
  if (!wanted) co_return tl::unexpected(std::move(wanted.error()));
  last_comparison_took_ = context_.now() - started;
  if (wanted->size() > kMostDifferences) co_return false;
  if (settle_time > 0ns) co_await context_.lifetime.pause(settle_time);
  if (ended(generation)) co_return stopped();
  StoreResult<bool> read = co_await readValues(std::move(*wanted), generation, std::nullopt);
  co_return read;
}

// The keys whose values are wanted. After a break of the watch those with the newest values too: a store that was
// restored and has gone on since may have the same keys at the same revisions, with other values.
Task<StoreResult<std::vector<KeyValue>>> Mirror::readKeys(StoreState& at, uint64_t generation) {
  const auto newer = [](const KeyValue& a, const KeyValue& b) { return a.mod_revision > b.mod_revision; };
  std::vector<KeyValue> wanted;
  std::vector<KeyValue> newest;  // a heap, with the oldest of them on top
  auto take = [&, this](std::vector<KeyValue>&& page) {
    if (ended(generation)) return false;
    for (const KeyValue& kv : page) {
      if (!isAfterBreak() || isPath(kv.key)) continue;
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
  const store::RangeOptions options{.revision = at.revision, .keys_only = true, .cluster_id = at.cluster_id};
  const int64_t known = at.revision == 0 ? resumeFloor() : 0;
  auto reading = readNamePages(context_.store, options_.ranges, options, options_.page_size, std::move(take));
  const StoreResult<int64_t> read = co_await reading;
  if (ended(generation)) co_return stopped();
  if (!read) co_return tl::unexpected(read.error());
  if (*read < known) co_return tl::unexpected(staleRead());
  giveBackPages();
  at.revision = *read;
  StoreResult<bool> checked = co_await readValues(std::move(newest), generation, at.revision);
  if (!checked) co_return tl::unexpected(std::move(checked.error()));
  co_return std::move(wanted);
}

// Of all that have not changed since `revision`; none: of those that are needed still.
Task<StoreResult<bool>> Mirror::readValues(std::vector<KeyValue> wanted, uint64_t generation,
                                           std::optional<int64_t> revision) {
  for (size_t next = 0; next < wanted.size();) {
    store::TxnRequest request;
    for (; next < wanted.size() && request.success.size() < kValuesPerRequest; ++next) {
      if (!revision && !replica_.needs(wanted[next])) continue;
      request.success.emplace_back(store::RangeOp{store::KeyRange::single(std::move(wanted[next].key)), {}});
    }
    if (request.success.empty()) break;
    const int64_t known = resumeFloor();
    StoreResult<store::TxnResult> answer = co_await context_.store.txn(std::move(request));
    if (ended(generation)) co_return stopped();
    if (!answer) co_return tl::unexpected(std::move(answer.error()));
    if (answer->revision < known) co_return tl::unexpected(staleRead());
    for (store::OpResult& result : answer->results) {
      auto* found = std::get_if<store::RangeResult>(&result);
      if (found == nullptr) continue;
      if (revision) std::erase_if(found->kvs, [&](const KeyValue& kv) { return kv.mod_revision > *revision; });
      replica_.addToSnapshot(found->kvs);
    }
  }
  co_return true;
}

// --- freshness ---

// The store has the deadline for itself: it counts from the moment on when this process goes on after a pause, before
// anything here runs.
void Mirror::confirmed(BootClock::time_point as_of) {
  if (table_ != Table::kLoaded) return;
  current_at_ = std::max(current_at_, as_of);
  const BootClock::time_point deadline = current_at_ + options_.stale_after;
  if (context_.now() >= deadline) return;
  const bool was_old = isOld(store_.freshness(context_.now()));
  store_.setFreshUntil(deadline);
  if (was_old) context_.log.info("names are current again");
  if (options_.on_freshness) options_.on_freshness();
}

Task<void> Mirror::watchFreshness() {
  while (true) {
    std::chrono::nanoseconds left = current_at_ + options_.stale_after - context_.now();
    const bool was_fresh = store_.freshUntil() != BootClock::time_point();
    if (was_fresh && left <= 0ns) {
      context_.log.warning("names are stale: nothing has confirmed them for {:.0f} s", secondsSince(current_at_));
      store_.setFreshness(Freshness::kStale);
      if (options_.on_freshness) options_.on_freshness();
    }
    if (left <= 0ns) left = options_.stale_after / 10;
    const bool go_on = co_await context_.lifetime.pause(left);
    if (!go_on) co_return;
  }
}

}  // namespace idetcd::naming
