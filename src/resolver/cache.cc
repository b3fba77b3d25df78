#include "resolver/cache.h"

#include <cstdlib>
#include <new>

#include "dns/response.h"
#include "records/entry.h"

namespace idetcd::resolver {

namespace {

// Memory is bounded in bytes too: a capacity of N entries holds at most N times this much.
constexpr size_t kMeanEntrySize = 1024;
constexpr uint8_t kMaxFrequency = 3;
// An insertion passes over so many entries that were asked for; then the oldest goes all the same. Else one query would
// walk through all of a queue in which everything is popular.
constexpr size_t kMaxSecondChances = 1000;
// An insertion lets at most so many go: more than the largest one needs, and not all that is too much where a reload
// has made the capacity smaller.
constexpr size_t kMaxEvictions = 1000;
constexpr size_t kFreshShare = 10;     // new entries take one part in so many
constexpr size_t kLargestShare = 100;  // and a single one, of the bytes, no more than this; but always the mean size

uint32_t clampTtl(uint32_t ttl, const Cache::Pool& pool) {
  return std::min(std::max(ttl, pool.min_ttl_seconds), pool.max_ttl_seconds);
}

int64_t nanosecondsOf(BootClock::time_point time) { return time.time_since_epoch().count(); }

constexpr int64_t kSecond = 1'000'000'000;

bool isFailure(const StoredResponse& response) { return response.kind == ResponseKind::kFailure; }

template <typename T>
void freeBeside(const std::shared_ptr<Executor>& executor, T object) {
  if (executor) freedOn(executor, std::make_unique<T>(std::move(object)));
}

}  // namespace

bool hasAnswer(const StoredResponse& response) {
  if (response.kind != ResponseKind::kUncacheable) return response.kind == ResponseKind::kPositive;
  return response.packed->rcode == dns::Rcode::kNoError && response.packed->answers > 0 && !response.unfinished;
}

// One block: this, the folded name, the packed response (aligned).
struct Cache::Entry {
  Entry* next;
  Entry* previous;
  uint64_t hash;
  int64_t inserted_ns;
  int64_t expires_ns;
  int64_t usable_ns;  // until then it may be served, if stale
  int64_t last_hit_ns;
  int64_t recheck_ns;  // before then the upstream is not asked again for a stale answer
  uint32_t hits;
  uint32_t size;  // bytes of the block
  uint16_t qtype;
  uint8_t name_size;
  uint8_t key_flags;  // DO and CD, as in keyHash()
  uint8_t frequency;
  bool is_denial : 1;
  bool is_failure : 1;
  bool prefetched : 1;
  bool has_failed : 1;  // the upstream, when it was asked again
  bool is_cut : 1;      // stands in Cache::cuts_
  Place place : 2;
  bool names_others : 1;  // resolver::namesOthers()
  uint8_t name_bytes[1];  // the first one, in what would be padding

  const uint8_t* name() const { return name_bytes; }
  std::span<const uint8_t> nameSpan() const { return {name_bytes, name_size}; }
  const dns::PackedResponse& response() const {
    return *reinterpret_cast<const dns::PackedResponse*>(reinterpret_cast<const uint8_t*>(this) +
                                                         responseAt(name_size));
  }

  bool isFastPathEligible(const dns::PackedResponse& packed, FastPath fast_path) const {
    return !packed.has_ede && dns::code(packed.rcode) <= dns::kRcodeMask &&
           !(fast_path.single_answer && packed.answers > 1) &&
           !(fast_path.answers_only && packed.answers > 0 && packed.proof_end != packed.body().size());
  }

  static constexpr size_t responseAt(size_t name_size) {
    return (offsetof(Entry, name_bytes) + name_size + 1) & ~size_t{1};
  }
  static size_t sizeFor(const dns::Query& query, const dns::PackedResponse& packed) {
    return responseAt(query.qname_size) + packed.blockSize();
  }

  static Entry* make(const dns::Query& query, const StoredResponse& response, const Pool& pool) {
    const size_t size = sizeFor(query, *response.packed);
    auto* block = static_cast<uint8_t*>(::operator new(size));
    auto* entry = ::new (block) Entry{};
    entry->size = static_cast<uint32_t>(size);
    entry->qtype = query.qtype;
    entry->names_others = namesOthers(query.qtype, *response.packed);
    entry->name_size = static_cast<uint8_t>(query.qname_size);
    std::copy(query.name().begin(), query.name().end(), block + offsetof(Entry, name_bytes));
    dns::PackedResponse* packed = response.packed->copyTo(block + responseAt(query.qname_size));
    const uint32_t signed_seconds = signatureSecondsLeft(response);
    // As long as the entry lives, no less and no more than it may.
    packed->changeTtls([&](uint32_t ttl) { return std::min(clampTtl(ttl, pool), signed_seconds); });
    return entry;
  }
  static void destroy(Entry* entry) { ::operator delete(entry); }
};

namespace {

uint8_t keyFlags(const dns::Query& query) {
  return static_cast<uint8_t>((query.dnssec_ok ? Cache::kDnssecOk : 0) |
                              ((query.flags & dns::kFlagCd) != 0 ? Cache::kCheckingDisabled : 0));
}

}  // namespace

// Where one is: in a queue, with so many before it that were there when it came to this queue. What comes later is at the
// end; what moves there is looked at when it moves.
struct Cache::Flush {
  dns::Name zone;
  size_t flushed = 0;
  size_t queue = 0;
  bool begins = true;     // that queue
  Entry* next = nullptr;  // in it; null: it is through
  size_t left = 0;
};

// The remains of a cache, as large as it has become.
struct Cache::Discarded {
  using Ghosts = ZeroedArray<uint64_t>;
  std::pair<Table::Slots, Table::Slots> slots;
  std::pair<Ghosts, Ghosts> ghosts;

  Discarded(std::pair<Table::Slots, Table::Slots> all_slots, Ghosts of_success, Ghosts of_denial)
      : slots(std::move(all_slots)), ghosts(std::move(of_success), std::move(of_denial)) {}
  Discarded(Discarded&&) = default;
  ~Discarded() {
    for (auto* some : {&slots.first, &slots.second}) {
      for (const Table::Bucket& slot : some->all()) Entry::destroy(slot.entry);
    }
  }
};

Cache::Cache(Options options, const metrics::Scope& metrics, std::shared_ptr<Executor> executor)
    : options_(std::move(options)),
      executor_(std::move(executor)),
      table_(makeTable()),
      counters_(std::make_shared<CacheCounters>(metrics)) {
  setOptions(options_);
}

Cache::Table Cache::makeTable() const {
  return Table([this](Table::Slots slots) { freeBeside(executor_, std::move(slots)); });
}

void Cache::setOptions(const Options& options) {
  options_ = options;
  if (options_.nxdomain_cut && !cuts_) cuts_.emplace(makeTable());
  success_.capacity = options_.success.capacity;
  denial_.capacity = options_.denial.capacity;
}

Cache::~Cache() {
  if (cuts_) freeBeside(executor_, std::move(*cuts_).release());
  freeBeside(executor_, Discarded(std::move(table_).release(), std::move(success_.ghosts), std::move(denial_.ghosts)));
}

uint64_t Cache::keyHash(const dns::Query& query) {
  // The name's hash is seeded and secret; type and flags are spread over all bits by an odd factor.
  const uint64_t rest = uint64_t{query.qtype} << 2 | keyFlags(query);
  return query.hash ^ (rest + 1) * 0x9e3779b97f4a7c15u;
}

bool Cache::matches(const Entry& entry, const dns::Query& query) {
  return entry.qtype == query.qtype && entry.key_flags == keyFlags(query) && entry.name_size == query.qname_size &&
         records::equalBytes(entry.name(), query.qname, entry.name_size);
}

void Cache::prefetchSlot(const dns::Query& query) const { table_.prefetch(keyHash(query)); }

void Cache::prefetchEntry(const dns::Query& query) const {
  const Entry* entry = table_.guess(keyHash(query));
  if (entry == nullptr) return;
  for (int line = 0; line < 3; ++line) __builtin_prefetch(reinterpret_cast<const char*>(entry) + line * 64);
}

Cache::Found Cache::find(const dns::Query& query, BootClock::time_point now, const MayAnswer& may_answer) {
  Entry* const kept = findEntry(keyHash(query), query);
  const int64_t now_ns = nanosecondsOf(now);
  if (kept == nullptr || now_ns >= kept->usable_ns ||
      (kept->names_others && may_answer && !may_answer(kept->response()))) {
    counters_->misses.add();
    return {};
  }
  Entry& entry = *kept;
  Found found;
  found.state = now_ns < entry.expires_ns ? State::kFresh : State::kStale;
  found.response = &entry.response();
  found.age_seconds = options_.keep_ttl ? 0 : static_cast<uint32_t>((now_ns - entry.inserted_ns) / kSecond);
  found.wants_prefetch = noteHit(entry, now);
  found.wants_refresh = now_ns >= entry.recheck_ns;
  found.has_failed = entry.has_failed;
  countersOf(entry).hits.add();
  return found;
}

Cache::Written Cache::writeFresh(const dns::Query& query, size_t limit, BootClock::time_point now, FastPath fast_path) {
  Entry* const kept = findEntry(keyHash(query), query);
  const int64_t now_ns = nanosecondsOf(now);
  if (kept == nullptr || now_ns >= kept->expires_ns) return {};
  Entry& entry = *kept;
  const dns::PackedResponse& packed = entry.response();
  if (!entry.isFastPathEligible(packed, fast_path)) return {};
  if (fast_path.no_others && entry.names_others) return {.names_others = &packed};
  // AD only for clients that know it (RFC 6840 §5.8).
  const bool authentic = packed.authentic_data && (query.dnssec_ok || (query.flags & dns::kFlagAd) != 0);
  const auto flags = static_cast<uint16_t>(dns::kFlagRa | (authentic ? dns::kFlagAd : 0) | dns::code(packed.rcode));
  const size_t size = dns::writeFastResponse(query, packed.body(), packed.counts(), limit, flags);
  if (size == 0) return {};
  const auto age = static_cast<uint32_t>((now_ns - entry.inserted_ns) / kSecond);
  if (age > 0 && !options_.keep_ttl) {
    uint8_t* records = query.message + query.question_end;
    for (const uint16_t offset : packed.ttlOffsets()) {
      const uint32_t ttl = dns::load32(records + offset);
      dns::store32(records + offset, ttl - std::min(ttl, age));
    }
  }
  countersOf(entry).hits.add();
  return {.size = size, .wants_prefetch = noteHit(entry, now)};
}

// Returns whether the entry ends soon and is asked for often enough to be fetched anew.
bool Cache::noteHit(Entry& entry, BootClock::time_point now) {
  if (entry.frequency < kMaxFrequency) ++entry.frequency;
  const Prefetch& prefetch = options_.prefetch;
  if (prefetch.amount == 0 || entry.is_failure) return false;
  const int64_t now_ns = nanosecondsOf(now);
  entry.hits = now_ns - entry.last_hit_ns <= prefetch.gap.count() ? entry.hits + 1 : 1;
  entry.last_hit_ns = now_ns;
  const int64_t threshold = (entry.expires_ns - entry.inserted_ns) / 100 * prefetch.percentage;
  if (entry.prefetched || entry.hits < prefetch.amount || entry.expires_ns - now_ns > threshold) return false;
  entry.prefetched = true;
  counters_->prefetches.add();
  return true;
}

Cache::Cut Cache::findCut(const dns::Query& query, BootClock::time_point now) {
  if (!options_.nxdomain_cut || cuts_->size() == 0) return {};
  const int64_t now_ns = nanosecondsOf(now);
  const uint8_t key_flags = keyFlags(query);
  for (auto name = query.name(); name.size() > 1; name = name.subspan(1u + name[0])) {  // the root exists
    Entry* entry = findCutAt(name, key_flags);
    if (entry == nullptr || now_ns >= entry->expires_ns) continue;
    if (entry->frequency < kMaxFrequency) ++entry->frequency;
    return {.response = &entry->response(),
            .name = entry->nameSpan(),
            .age_seconds = options_.keep_ttl ? 0 : static_cast<uint32_t>((now_ns - entry->inserted_ns) / kSecond)};
  }
  return {};
}

uint64_t Cache::cutHash(std::span<const uint8_t> name, uint8_t key_flags) const {
  return hashBytes(name.data(), name.size(), cut_seed_) + key_flags;
}

Cache::Entry* Cache::findCutAt(std::span<const uint8_t> name, uint8_t key_flags) const {
  return cuts_->find(cutHash(name, key_flags), [&](const Entry& entry) {
    return entry.key_flags == key_flags && std::ranges::equal(entry.nameSpan(), name);
  });
}

// Of several types of one name the latest denial stands for all.
void Cache::addCut(Entry* entry) {
  if (Entry* old = findCutAt(entry->nameSpan(), entry->key_flags)) removeCut(old);
  entry->is_cut = true;
  cuts_->insert(cutHash(entry->nameSpan(), entry->key_flags), entry);
}

void Cache::removeCut(Entry* entry) {
  entry->is_cut = false;
  cuts_->erase(cutHash(entry->nameSpan(), entry->key_flags), entry);
}

void Cache::noteRefresh(const dns::Query& query, BootClock::time_point now) {
  if (Entry* entry = findEntry(keyHash(query), query)) entry->recheck_ns = nanosecondsOf(now + kRefreshTime);
}

void Cache::noteFailure(const dns::Query& query, BootClock::time_point now) {
  Entry* entry = findEntry(keyHash(query), query);
  if (entry == nullptr || entry->is_failure) return;
  entry->has_failed = true;
  entry->recheck_ns = nanosecondsOf(now + options_.recheck);
}

void Cache::insert(const dns::Query& query, const StoredResponse& response, BootClock::time_point now) {
  if (response.kind == ResponseKind::kUncacheable) counters_->drops.add();
  const bool failure = isFailure(response);
  const uint64_t hash = keyHash(query);
  const int64_t now_ns = nanosecondsOf(now);
  const size_t size = Entry::sizeFor(query, *response.packed);
  const bool keep = isWorthKeeping(query, response, size);
  bool was_main = false;
  uint8_t frequency = 0;
  if (Entry* old = findEntry(hash, query)) {
    if (isPreferred(*old, response, now_ns)) return;
    // An answer whose time is over is no longer true if the upstream says something else, even if that must not be
    // kept.
    if (!keep && (failure || now_ns < old->expires_ns)) return;
    was_main = old->place == kMain;  // a refreshed answer keeps its rank
    frequency = old->frequency;
    remove(old);
  }
  if (!keep) return;
  Fifo& fifo = fifoOf(response.kind);
  const bool proven = was_main || wasGhost(fifo, hash);
  const Place place = proven ? kMain : size > kMeanEntrySize ? kLarge : kSmall;
  makeRoom(fifo, size, place);

  add(query, response, {.came_at = now, .frequency = frequency}, fifo, place);
}

// The times in `rank` count from then on; `place` has been decided.
void Cache::add(const dns::Query& query, const StoredResponse& response, const CacheRank& rank, Fifo& fifo,
                Place place) {
  const bool failure = isFailure(response);
  const Pool& kept_in = pool(response.kind);
  Entry* entry = Entry::make(query, response, kept_in);
  const int64_t came_at_ns = nanosecondsOf(rank.came_at);
  const int64_t ttl_ns = failure ? options_.failure_ttl.count() : clampTtl(response.ttl_seconds, kept_in) * kSecond;
  const int64_t signed_ns = int64_t{signatureSecondsLeft(response)} * kSecond;
  const int64_t stale_ns = failure ? 0 : std::chrono::nanoseconds(options_.serve_stale).count();
  entry->hash = keyHash(query);
  entry->key_flags = keyFlags(query);
  entry->is_denial = response.kind != ResponseKind::kPositive;
  entry->is_failure = failure;
  entry->inserted_ns = came_at_ns;
  entry->expires_ns = came_at_ns + std::min(ttl_ns, signed_ns);
  entry->usable_ns = came_at_ns + std::min(ttl_ns + stale_ns, signed_ns);
  entry->last_hit_ns = came_at_ns;
  entry->frequency = rank.frequency;
  entry->place = place;
  push(fifo.queues[place], entry);
  bytes_ += entry->size;
  table_.insert(entry->hash, entry);
  if (cuts_ && response.kind == ResponseKind::kNxDomain && response.packed->answers == 0) addCut(entry);
  counters_->insertions.add();
  noteSize();
}

void Cache::restore(const dns::Query& query, const StoredResponse& response, const CacheRank& rank,
                    BootClock::time_point now) {
  const size_t size = Entry::sizeFor(query, *response.packed);
  if (isFailure(response) || !isWorthKeeping(query, response, size)) return;
  const auto usable = std::chrono::seconds(clampTtl(response.ttl_seconds, pool(response.kind))) + options_.serve_stale;
  if (rank.came_at + usable <= now || findEntry(keyHash(query), query) != nullptr) return;
  Fifo& fifo = fifoOf(response.kind);
  const Place place = rank.proven ? kMain : size > kMeanEntrySize ? kLarge : kSmall;
  makeRoom(fifo, size, place);
  add(query, response, {rank.came_at, std::min(rank.frequency, kMaxFrequency), rank.proven}, fifo, place);
}

void Cache::beginWalk() {
  walk_queue_ = 0;
  walk_begins_ = true;
  walk_left_ = 8 * size();  // whatever comes and moves meanwhile
}

// Null: there are no more.
Cache::Queue* Cache::walkedQueue(size_t index) {
  const size_t count = success_.queues.size();
  if (index >= 2 * count) return nullptr;
  return index < count ? &success_.queues[index] : &denial_.queues[index - count];
}

bool Cache::walk(size_t count, const std::function<void(const Kept&)>& visit) {
  while (Queue* const queue = walk_left_ > 0 ? walkedQueue(walk_queue_) : nullptr) {
    if (std::exchange(walk_begins_, false)) walk_next_ = queue->head;
    for (; walk_next_ != nullptr && walk_left_ > 0; walk_next_ = walk_next_->next) {
      if (count == 0) return true;
      --count;
      --walk_left_;
      const Entry& entry = *walk_next_;
      if (entry.is_failure) continue;
      Kept kept;
      kept.came_at = BootClock::time_point(std::chrono::nanoseconds(entry.inserted_ns));
      kept.frequency = entry.frequency;
      kept.proven = entry.place == kMain;
      kept.name = entry.nameSpan();
      kept.qtype = entry.qtype;
      kept.key_flags = entry.key_flags;
      kept.response = &entry.response();
      visit(kept);
    }
    ++walk_queue_;
    walk_begins_ = true;
  }
  walk_next_ = nullptr;
  return false;
}

size_t Cache::flushAll() {
  const size_t flushed = size();
  freeBeside(executor_, Discarded(std::move(table_).release(), std::move(success_.ghosts), std::move(denial_.ghosts)));
  table_ = makeTable();
  if (cuts_) {
    freeBeside(executor_, std::move(*cuts_).release());
    cuts_.emplace(makeTable());
  }
  for (Fifo* fifo : {&success_, &denial_}) {
    fifo->queues = {};
    fifo->ghosts = {};
  }
  bytes_ = 0;
  walk_next_ = nullptr;
  for (const auto& flush : flushes_) flush->next = nullptr;
  noteSize();
  return flushed;
}

std::shared_ptr<Cache::Flush> Cache::beginFlush(const dns::Name& zone) {
  std::erase_if(flushes_, [](const auto& flush) { return flush.use_count() == 1; });
  return flushes_.emplace_back(std::make_shared<Flush>(Flush{.zone = zone}));
}

std::optional<size_t> Cache::flushSome(const std::shared_ptr<Flush>& flush, size_t count) {
  while (Queue* const queue = walkedQueue(flush->queue)) {
    if (std::exchange(flush->begins, false)) {
      flush->next = queue->head;
      flush->left = queue->size;
    }
    for (; flush->next != nullptr && flush->left > 0; --flush->left) {
      if (count == 0) return std::nullopt;
      --count;
      Entry* const entry = std::exchange(flush->next, flush->next->next);
      if (!dns::isNameWithin(entry->nameSpan(), flush->zone)) continue;
      remove(entry);
      ++flush->flushed;
    }
    ++flush->queue;
    flush->begins = true;
  }
  std::erase(flushes_, flush);
  return flush->flushed;
}

bool Cache::isBeingFlushed(const Entry& entry) {
  for (const auto& flush : flushes_) {
    if (!dns::isNameWithin(entry.nameSpan(), flush->zone)) continue;
    ++flush->flushed;
    return true;
  }
  return false;
}

// Whether what is kept stays, rather than what the upstream says now.
bool Cache::isPreferred(const Entry& old, const StoredResponse& response, int64_t now_ns) const {
  if (now_ns >= old.usable_ns) return false;
  if (isFailure(response)) return !old.is_failure;
  return options_.prefer_positive && !old.is_denial && !hasAnswer(response);
}

bool Cache::isWorthKeeping(const dns::Query& query, const StoredResponse& response, size_t entry_size) const {
  const Pool& kept_in = pool(response.kind);
  if (response.kind == ResponseKind::kUncacheable || kept_in.capacity == 0) return false;
  if (std::ranges::any_of(kept_in.disabled,
                          [&query](const dns::Name& zone) { return dns::isNameWithin(query.name(), zone); })) {
    return false;
  }
  if (isFailure(response) && options_.failure_ttl.count() == 0) return false;
  if (signatureSecondsLeft(response) == 0) return false;
  return entry_size <= std::max(kept_in.capacity * kMeanEntrySize / kLargestShare, kMeanEntrySize);
}

CacheKindCounters& Cache::countersOf(const Entry& entry) {
  return entry.is_denial ? counters_->denial : counters_->success;
}

Cache::Fifo& Cache::fifoOf(const Entry& entry) { return entry.is_denial ? denial_ : success_; }

size_t Cache::Fifo::byteCapacity() const { return capacity * kMeanEntrySize; }

bool Cache::Fifo::isFull(size_t more_bytes) const {
  return size() > 0 && (size() >= capacity || bytes() + more_bytes > byteCapacity());
}

bool Cache::Fifo::isLargeShareFull(size_t more_bytes) const {
  return (queues[kLarge].bytes + more_bytes) * kFreshShare > byteCapacity();
}

// Whose oldest entry is to go. REQUIRES: there is one.
Cache::Place Cache::Fifo::victim() const {
  const Queue& small = queues[kSmall];
  const Queue& large = queues[kLarge];
  const bool share_is_used = (small.size + large.size) * kFreshShare >= capacity ||
                             (small.bytes + large.bytes) * kFreshShare >= byteCapacity();
  assert(queues[kMain].size + small.size + large.size > 0);
  if (queues[kMain].size > 0 && (small.size + large.size == 0 || !share_is_used)) return kMain;
  if (small.size == 0 || large.size == 0) return small.size == 0 ? kLarge : kSmall;
  return large.head->inserted_ns < small.head->inserted_ns ? kLarge : kSmall;
}

void Cache::makeRoom(Fifo& fifo, size_t bytes, Place place) {
  size_t chances = kMaxSecondChances;
  size_t steps = kMaxSecondChances + kMaxEvictions;  // each lets an entry go or takes a chance
  for (; steps > 0 && place == kLarge && fifo.queues[kLarge].size > 0 && fifo.isLargeShareFull(bytes); --steps) {
    evictHead(fifo, kLarge, chances);
  }
  for (; steps > 0 && fifo.isFull(bytes); --steps) evictHead(fifo, fifo.victim(), chances);
}

// Lets the oldest entry of a queue go: of the new ones if it was not asked for again, of the main queue if it was not
// asked for lately. Else it takes one of the `chances`, and goes to the end of the main queue.
void Cache::evictHead(Fifo& fifo, Place place, size_t& chances) {
  Queue& queue = fifo.queues[place];
  Entry* entry = queue.head;
  if (chances == 0 || entry->frequency <= (place == kMain ? 0 : 1)) {
    if (place != kMain) rememberGhost(fifo, entry->hash);
    countersOf(*entry).evictions.add();
    return remove(entry);
  }
  if (isBeingFlushed(*entry)) return remove(entry);
  --chances;
  unlink(queue, entry);
  entry->frequency = place == kMain ? static_cast<uint8_t>(entry->frequency - 1) : 0;
  entry->place = kMain;
  push(fifo.queues[kMain], entry);
}

void Cache::noteSize() {
  counters_->success.entries.set(static_cast<double>(success_.size()));
  counters_->denial.entries.set(static_cast<double>(denial_.size()));
  counters_->bytes.set(static_cast<double>(bytes_));
}

void Cache::remove(Entry* entry) {
  unlink(fifoOf(*entry).queues[entry->place], entry);
  table_.erase(entry->hash, entry);
  if (entry->is_cut) removeCut(entry);
  bytes_ -= entry->size;
  Entry::destroy(entry);
  noteSize();
}

void Cache::push(Queue& queue, Entry* entry) {
  entry->next = nullptr;
  entry->previous = queue.tail;
  (queue.tail != nullptr ? queue.tail->next : queue.head) = entry;
  queue.tail = entry;
  ++queue.size;
  queue.bytes += entry->size;
}

void Cache::unlink(Queue& queue, Entry* entry) {
  if (entry == walk_next_) walk_next_ = entry->next;
  for (const auto& flush : flushes_) {
    if (entry == flush->next) flush->next = entry->next;
  }
  (entry->previous != nullptr ? entry->previous->next : queue.head) = entry->next;
  (entry->next != nullptr ? entry->next->previous : queue.tail) = entry->previous;
  --queue.size;
  queue.bytes -= entry->size;
}

// As many ghosts as the main queue has room for entries, direct-mapped: a collision costs one ghost.
void Cache::rememberGhost(Fifo& fifo, uint64_t hash) {
  if (fifo.ghosts.empty()) {
    size_t size = 64;
    while (size < fifo.capacity) size *= 2;
    fifo.ghosts = ZeroedArray<uint64_t>(size);
  }
  fifo.ghosts[hash >> 16 & (fifo.ghosts.size() - 1)] = hash;
}

bool Cache::wasGhost(const Fifo& fifo, uint64_t hash) const {
  return !fifo.ghosts.empty() && fifo.ghosts[hash >> 16 & (fifo.ghosts.size() - 1)] == hash;
}

}  // namespace idetcd::resolver
