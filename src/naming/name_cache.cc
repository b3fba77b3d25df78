#include "naming/name_cache.h"

#include <set>

#include "naming/context.h"
#include "naming/name_pages.h"

namespace idetcd::naming {
namespace {

using runtime::Task;
using store::KeyRange;
using store::KeyValue;
using store::RangeResult;
using store::StoreError;
using store::StoreResult;
using store::WatchBatch;
using store::WatchEvent;
using store::WatchStream;
using namespace std::chrono_literals;

// Without anything from the store for so long it is left. A sign of life is asked for at the half.
constexpr std::chrono::nanoseconds kUpstreamSilence = 5s;
// Between two questions for the store's revision.
constexpr std::chrono::nanoseconds kProgressPause = 100ms;
// How often a quorum is asked for what is newer than what has come, and how long that may take to come.
constexpr std::chrono::nanoseconds kCheckInterval = 5s;
constexpr std::chrono::nanoseconds kSettleTime = 2s;
// How often all keys are compared, of so many names; of more as much more seldom.
constexpr std::chrono::nanoseconds kWholeInterval = 60s;
constexpr size_t kNamesOfInterval = 500;
// A batch for a reader that is behind is made of several, up to so much.
constexpr size_t kBatchBytes = size_t{128} << 10;
constexpr int64_t kMostInPage = 1000;
constexpr size_t kBytesBesides = 100;  // of an event, beside key and value

size_t sizeOf(const WatchBatch& batch) {
  size_t bytes = kBytesBesides;
  for (const WatchEvent& event : batch.events) bytes += kBytesBesides + event.kv.key.size() + event.kv.value.size();
  return bytes;
}

bool isWithin(const KeyRange& range, std::string_view key) {
  return key >= range.begin && (range.end == std::string(1, '\0') || key < range.end);
}

StoreError ended() { return {ErrorCode::kUnavailable, "the relay has lost its own watch, or ends"}; }

}  // namespace

// What one watch of the cache has still to read.
class NameCache::Reader final : public WatchStream {
 public:
  Reader(std::shared_ptr<NameCache> cache, std::vector<size_t> indices, const std::vector<store::WatchRange>& ranges)
      : cache_(std::move(cache)),
        created_(cache_->known_),
        cluster_id_(cache_->cluster_id_),
        breaks_(cache_->breaks_),
        next_(cache_->first_change_),
        begin_(next_ + cache_->changes_.size()),
        places_(cache_->ranges_.size()) {
    for (size_t i = 0; i < indices.size(); ++i) places_[indices[i]] = Place{i, ranges[i].start_revision};
  }

  Task<StoreResult<WatchBatch>> next(std::chrono::nanoseconds timeout) override;
  int64_t createdRevision() const override { return created_; }
  uint64_t clusterId() const override { return cluster_id_; }
  bool isAtCurrentEndpoint() const override { return true; }
  void doubt(std::chrono::nanoseconds) override { cache_->askProgress(); }
  void leave(const std::string&) override {}

 private:
  // A range of the cache, as the reader has asked for it.
  struct Place {
    size_t index = 0;
    int64_t start = 0;
    int64_t resume = 0;
  };

  std::optional<WatchBatch> take();
  bool isOutdated(const Change& change) const;
  bool add(const WatchBatch& change, WatchBatch* batch);

  const std::shared_ptr<NameCache> cache_;
  const int64_t created_;
  const uint64_t cluster_id_;
  const uint64_t breaks_;
  uint64_t next_;         // the number of a change
  const uint64_t begin_;  // of the first one that came after the watch was created
  std::vector<std::optional<Place>> places_;
};

Task<StoreResult<WatchBatch>> NameCache::Reader::next(std::chrono::nanoseconds timeout) {
  const std::shared_ptr<NameCache> cache = cache_;
  const auto deadline = cache->scheduler_.now() + timeout;
  while (true) {
    if (cache->breaks_ != breaks_ || cache->stopping()) co_return tl::unexpected(ended());
    if (next_ < cache->first_change_)
      co_return tl::unexpected(StoreError{ErrorCode::kCompacted, "the relay does not keep what comes next any more"});
    if (auto batch = take()) co_return std::move(*batch);
    const std::chrono::nanoseconds left = deadline - cache->scheduler_.now();
    if (left <= 0ns) co_return tl::unexpected(StoreError{ErrorCode::kDeadlineExceeded, "the watch is silent"});
    co_await cache->news_.wait(left);
  }
}

// What there is, as one batch: of one range, and either changes or an answer about progress.
std::optional<WatchBatch> NameCache::Reader::take() {
  WatchBatch batch;
  bool has_some = false;
  size_t bytes = 0;
  for (; next_ < cache_->first_change_ + cache_->changes_.size(); ++next_) {
    const Change& change = cache_->changes_[next_ - cache_->first_change_];
    const bool continues = has_some && !batch.events.empty() && !change.batch.events.empty() &&
                           places_[change.batch.range] && places_[change.batch.range]->index == batch.range &&
                           bytes + change.bytes <= kBatchBytes;
    if (has_some && !continues) break;
    if (isOutdated(change) || !add(change.batch, &batch)) continue;
    has_some = true;
    bytes += change.bytes;
  }
  if (!has_some) return std::nullopt;
  return batch;
}

// What the store has said of its progress counts for the time at which it is read: an older answer says too little.
bool NameCache::Reader::isOutdated(const Change& change) const {
  const bool is_last = next_ + 1 == cache_->first_change_ + cache_->changes_.size();
  return change.batch.events.empty() && (!is_last || next_ < begin_);
}

// False: nothing of it is for this reader.
bool NameCache::Reader::add(const WatchBatch& change, WatchBatch* batch) {
  std::optional<Place>& place = places_[change.range];
  if (!place) return false;
  const size_t before = batch->events.size();
  for (const WatchEvent& event : change.events) {
    if (event.kv.mod_revision >= place->start) batch->events.push_back(event);
  }
  if (!change.events.empty() && batch->events.size() == before) return false;
  place->resume = std::max({place->resume, place->start, change.resume_revision});
  batch->revision = change.revision;
  batch->cluster_id = change.cluster_id;
  batch->range = place->index;
  batch->resume_revision = place->resume;
  return true;
}

// --- readers ---

void NameCache::stop() {
  stopped_.set();
  tellReaders();
}

void NameCache::forget() {
  is_loaded_ = false;
  if (upstream_ != nullptr) upstream_->doubt(kUpstreamSilence / 2);
}

void NameCache::tellReaders() {
  news_.set();
  news_.reset();
}

// For all who wait for it, now and then.
void NameCache::askProgress() {
  if (upstream_ == nullptr || scheduler_.now() < next_progress_) return;
  next_progress_ = scheduler_.now() + kProgressPause;
  upstream_->doubt(kUpstreamSilence / 2);
}

template <typename Condition>
Task<bool> NameCache::waitUntil(Condition holds) {
  const auto deadline = scheduler_.now() + kPatience;
  while (!holds()) {
    const std::chrono::nanoseconds left = deadline - scheduler_.now();
    if (left <= 0ns || stopping()) co_return false;
    askProgress();
    co_await news_.wait(std::min(left, kProgressPause));
  }
  co_return true;
}

std::optional<size_t> NameCache::indexOf(const KeyRange& range) const {
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].begin == range.begin && ranges_[i].end == range.end) return i;
  }
  return std::nullopt;
}

// Whether the changes up to the revision have come, only changes tell, or etcd's own notification: its answer to a progress
// request may come ahead of them.
Task<StoreResult<RangeResult>> NameCache::range(KeyRange range, store::RangeOptions options) {
  const auto self = shared_from_this();
  auto waiting = waitUntil([this, &options] { return upstream_ != nullptr && delivered() >= options.revision; });
  const bool has_all = co_await waiting;
  if (!has_all) co_return tl::unexpected(StoreError{ErrorCode::kUnavailable, "the relay is not that far"});
  if (options.cluster_id != 0 && options.cluster_id != cluster_id_)
    co_return tl::unexpected(StoreError{ErrorCode::kOtherCluster, "the relay is of another cluster"});
  RangeResult result;
  result.revision = delivered();
  result.cluster_id = cluster_id_;
  const int64_t most = options.limit > 0 ? std::min(options.limit, kMostInPage) : kMostInPage;
  for (auto it = names_.lower_bound(range.begin); it != names_.end() && isWithin(range, it->first); ++it) {
    result.more = std::ssize(result.kvs) == most;
    if (result.more) break;
    result.kvs.push_back(it->second);
  }
  result.count = result.more ? std::ssize(names_) : std::ssize(result.kvs);
  co_return result;
}

Task<StoreResult<std::unique_ptr<WatchStream>>> NameCache::watch(std::vector<store::WatchRange> ranges) {
  const auto self = shared_from_this();
  std::vector<size_t> indices;
  int64_t newest = 0;
  for (const store::WatchRange& watched : ranges) {
    const auto index = indexOf(watched.range);
    if (!index) co_return tl::unexpected(StoreError{ErrorCode::kOther, "the relay watches other ranges"});
    indices.push_back(*index);
    newest = std::max(newest, watched.start_revision - 1);
  }
  auto waiting = waitUntil([this, newest] { return upstream_ != nullptr && known_ >= newest; });
  const bool is_there = co_await waiting;
  if (!is_there) co_return tl::unexpected(StoreError{ErrorCode::kUnavailable, "the relay is not that far"});
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].start_revision < oldest_[indices[i]])
      co_return tl::unexpected(StoreError{ErrorCode::kCompacted, "the relay does not keep what comes first any more"});
  }
  co_return std::make_unique<Reader>(self, std::move(indices), ranges);
}

// --- the store ---

Task<void> NameCache::run() {
  const auto self = shared_from_this();
  Backoff backoff(jitter_, 100ms, 5s);
  while (!stopping()) {
    auto opening = is_loaded_ ? resume() : load();
    StoreResult<std::unique_ptr<WatchStream>> stream = co_await opening;
    if (stopping()) break;
    if (stream) {
      is_loaded_ = true;
      is_behind_ = false;
      upstream_ = stream->get();
      tellReaders();
      auto consuming = consume(**stream);
      const StoreError error = co_await consuming;
      upstream_ = nullptr;
      ++breaks_;
      tellReaders();
      if (error.code == ErrorCode::kCompacted || error.code == ErrorCode::kDisordered) is_loaded_ = false;
      if (!stopping()) log_.info("the watch for other nodes has ended: {}", error.message);
    } else if (stream.error().code == ErrorCode::kCompacted) {
      is_loaded_ = false;
    }
    if (stream) backoff.reset();
    const std::chrono::nanoseconds pause = backoff.next();
    co_await stopped_.wait(pause);
  }
}

// As the mirror does: the watch is open before anything is read.
Task<StoreResult<std::unique_ptr<WatchStream>>> NameCache::load() {
  KeyRange any = KeyRange::single(ranges_.front().begin);
  const StoreResult<RangeResult> now = co_await store_.range(std::move(any), {.limit = 1});
  if (stopping()) co_return stopped();
  if (!now) co_return tl::unexpected(now.error());
  std::vector<int64_t> from(ranges_.size(), now->revision + 1);
  auto opening = openUpstream(from, now->cluster_id);
  auto stream = co_await opening;
  if (stopping()) co_return stopped();
  if (!stream) co_return tl::unexpected(std::move(stream.error()));
  names_.clear();
  newest_ = {};
  auto page = [this](std::vector<KeyValue>&& kvs) {
    if (stopping()) return false;
    for (KeyValue& kv : kvs) put(std::move(kv));
    return true;
  };
  const store::RangeOptions options{.revision = now->revision, .cluster_id = now->cluster_id};
  auto reading = readNamePages(store_, ranges_, options, 0, std::move(page));
  const StoreResult<int64_t> read = co_await reading;
  if (stopping()) co_return stopped();
  if (!read) co_return tl::unexpected(read.error());
  first_change_ += changes_.size();
  changes_.clear();
  change_bytes_ = 0;
  oldest_ = resume_ = std::move(from);
  known_ = now->revision;
  cluster_id_ = now->cluster_id;
  co_return std::move(stream);
}

Task<StoreResult<std::unique_ptr<WatchStream>>> NameCache::resume() {
  auto opening = openUpstream(resume_, cluster_id_);
  auto stream = co_await opening;
  if (stopping()) co_return stopped();
  // It is open, or of the future.
  if (!stream && stream.error().code != ErrorCode::kOther) co_return tl::unexpected(std::move(stream.error()));
  auto checking = isSameHistory();
  const StoreResult<bool> same = co_await checking;
  if (stopping()) co_return stopped();
  if (!same) co_return tl::unexpected(same.error());
  if (!*same) is_loaded_ = false;
  if (!*same) co_return tl::unexpected(StoreError{ErrorCode::kUnavailable, "the store was lost or restored"});
  co_return std::move(stream);
}

// By a read of a quorum, behind the new watch: the newest name that was put is what it was, or was it at that revision.
Task<StoreResult<bool>> NameCache::isSameHistory() {
  const bool has_newest = newest_.first > 0;
  const KeyRange key = KeyRange::single(has_newest ? newest_.second : ranges_.front().begin);
  const StoreResult<RangeResult> now = co_await store_.range(key, {.limit = 1});
  if (!now) co_return tl::unexpected(now.error());
  if (now->cluster_id != cluster_id_ || now->revision < std::max(known_, delivered())) co_return false;
  if (!has_newest) co_return true;
  if (!now->kvs.empty() && now->kvs.front().mod_revision == newest_.first) co_return true;
  const StoreResult<RangeResult> then = co_await store_.range(key, {.revision = newest_.first, .limit = 1});
  if (!then && then.error().code != ErrorCode::kCompacted) co_return tl::unexpected(then.error());
  co_return then && !then->kvs.empty() && then->kvs.front().mod_revision == newest_.first;
}

Task<StoreResult<std::unique_ptr<WatchStream>>> NameCache::openUpstream(std::vector<int64_t> from,
                                                                        uint64_t cluster_id) {
  const int64_t newest = *std::ranges::max_element(from) - 1;
  std::vector<store::WatchRange> ranges;
  for (size_t i = 0; i < ranges_.size(); ++i) ranges.push_back({ranges_[i], from[i]});
  auto stream = co_await store_.watch(std::move(ranges));
  if (stopping()) co_return stopped();
  if (!stream) co_return tl::unexpected(std::move(stream.error()));
  if ((*stream)->createdRevision() < newest || (*stream)->clusterId() != cluster_id)
    co_return tl::unexpected(StoreError{ErrorCode::kOther, "a watch from the future of the store, or of another one"});
  co_return std::move(stream);
}

Task<StoreError> NameCache::consume(WatchStream& stream) {
  while (!stopping()) {
    StoreResult<WatchBatch> batch = co_await stream.next(kUpstreamSilence);
    if (!batch) co_return std::move(batch.error());
    if (batch->cluster_id != cluster_id_) co_return StoreError{ErrorCode::kOther, "the store is another one"};
    take(std::move(*batch));
    if (is_behind_ || !is_loaded_) {
      constexpr std::string_view kLost = "it has lost changes";
      stream.leave(std::string(kLost));
      co_return StoreError{ErrorCode::kOther, std::string(kLost)};
    }
    if (!stream.isAtCurrentEndpoint()) co_return StoreError{ErrorCode::kUnavailable, "the endpoint was left"};
  }
  co_return StoreError{ErrorCode::kCancelled, "stopping"};
}

Task<void> NameCache::checkRegularly() {
  const auto self = shared_from_this();
  BootClock::time_point next_whole = scheduler_.now() + kWholeInterval;
  while (true) {
    const std::chrono::nanoseconds pause = jitter_.around(kCheckInterval, 0.5);
    co_await stopped_.wait(pause);
    if (stopping()) co_return;
    if (upstream_ == nullptr) continue;
    if (scheduler_.now() < next_whole) {
      auto checking = checkNewest();
      co_await checking;
    } else {
      auto comparing = compareAll();
      co_await comparing;
      const auto times = static_cast<int64_t>(1 + names_.size() / kNamesOfInterval);
      next_whole = scheduler_.now() + jitter_.around(kWholeInterval * times, 0.25);
    }
    if (stopping()) co_return;
    if ((is_behind_ || !is_loaded_) && upstream_ != nullptr) upstream_->doubt(kUpstreamSilence / 2);
  }
}

// A key that is newer than all that has come is to come.
Task<void> NameCache::checkNewest() {
  constexpr int64_t kMost = 100;
  const uint64_t breaks = breaks_;
  int64_t newest = 0;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    KeyRange range = ranges_[i];
    const store::RangeOptions options{
        .limit = kMost, .min_mod_revision = delivered() + 1, .keys_only = true, .cluster_id = cluster_id_};
    const StoreResult<RangeResult> answer = co_await store_.range(std::move(range), options);
    if (!answer || stopping()) co_return;
    for (const KeyValue& kv : answer->kvs) newest = std::max(newest, kv.mod_revision);
  }
  if (newest <= delivered()) co_return;
  co_await stopped_.wait(kSettleTime);
  is_behind_ = breaks == breaks_ && upstream_ != nullptr && delivered() < newest;
}

Task<void> NameCache::compareAll() {
  const uint64_t breaks = breaks_;
  std::map<std::string, int64_t> keys;
  auto page = [&keys](std::vector<KeyValue>&& kvs) {
    for (KeyValue& kv : kvs) {
      if (!isPath(kv.key)) keys.emplace(std::move(kv.key), kv.mod_revision);
    }
    return true;
  };
  const store::RangeOptions options{.keys_only = true, .cluster_id = cluster_id_};
  auto reading = readNamePages(store_, ranges_, options, 0, std::move(page));
  const StoreResult<int64_t> revision = co_await reading;
  if (!revision || stopping()) co_return;
  co_await stopped_.wait(kSettleTime);
  if (stopping() || breaks != breaks_ || upstream_ == nullptr || agrees(keys, *revision)) co_return;
  log_.warning("the watch for other nodes had lost changes, found by comparison at revision {}", *revision);
  is_loaded_ = false;
}

// Of what has changed since `revision` nothing is compared.
bool NameCache::agrees(const std::map<std::string, int64_t>& keys, int64_t revision) const {
  std::set<std::string_view> changed;
  for (const Change& change : changes_) {
    for (const WatchEvent& event : change.batch.events) {
      if (event.kv.mod_revision > revision) changed.insert(event.kv.key);
    }
  }
  const auto isKnown = [&](const auto& key) {
    const auto found = names_.find(key.first);
    return changed.contains(key.first) || (found != names_.end() && found->second.mod_revision >= key.second);
  };
  const auto isThere = [&](const auto& name) { return changed.contains(name.first) || keys.contains(name.first); };
  return std::ranges::all_of(keys, isKnown) && std::ranges::all_of(names_, isThere);
}

void NameCache::take(WatchBatch batch) {
  for (const WatchEvent& event : batch.events) {
    if (event.type == WatchEvent::Type::kPut) {
      put(event.kv);
    } else if (const auto it = names_.find(event.kv.key);
               it != names_.end() && it->second.mod_revision < event.kv.mod_revision) {
      names_.erase(it);
    }
  }
  resume_[batch.range] = std::max(resume_[batch.range], batch.resume_revision);
  known_ = std::max(known_, batch.revision);
  keep(std::move(batch));
  tellReaders();
}

void NameCache::put(KeyValue kv) {
  if (isPath(kv.key)) return;
  if (kv.mod_revision > newest_.first) newest_ = {kv.mod_revision, kv.key};
  KeyValue& name = names_[kv.key];
  if (name.mod_revision < kv.mod_revision) name = std::move(kv);
}

void NameCache::keep(WatchBatch batch) {
  const size_t bytes = sizeOf(batch);
  change_bytes_ += bytes;
  changes_.push_back({std::move(batch), bytes});
  while (change_bytes_ > kMostKept && changes_.size() > 1) {
    const Change& dropped = changes_.front();
    if (!dropped.batch.events.empty()) {
      int64_t& oldest = oldest_[dropped.batch.range];
      oldest = std::max(oldest, dropped.batch.events.back().kv.mod_revision + 1);
    }
    change_bytes_ -= dropped.bytes;
    changes_.pop_front();
    ++first_change_;
  }
}

}  // namespace idetcd::naming
