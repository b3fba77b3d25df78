#include "resolve/cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "dns/response.h"
#include "records/entry.h"

namespace idetcd::resolve {

namespace {

constexpr size_t kFirstSlots = 1024;
// Memory is bounded in bytes too: a capacity of N entries holds at most N times this much.
constexpr size_t kMeanEntrySize = 1024;
constexpr uint8_t kMaxFrequency = 3;
constexpr size_t kFreshShare = 10;     // new entries take one part in so many
constexpr size_t kLargestShare = 100;  // and a single one, of the bytes, no more than this; but always the mean size

uint32_t clampTtl(uint32_t ttl, const Cache::Pool& pool) {
  return std::min(std::max(ttl, pool.min_ttl_seconds), pool.max_ttl_seconds);
}

int64_t nanosecondsOf(BootClock::time_point time) { return time.time_since_epoch().count(); }

constexpr int64_t kSecond = 1'000'000'000;

bool isFailure(const StoredResponse& response) { return response.kind == ResponseKind::kFailure; }

}  // namespace

// One block: this, the folded name, the body, then the TTL offsets (aligned).
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
  uint32_t size;  // octets of the block
  uint16_t qtype;
  uint16_t body_size;
  uint16_t ttl_count;
  uint16_t answers;
  uint16_t authorities;
  uint16_t additionals;
  uint16_t proofs;
  uint16_t answer_size;
  uint16_t proof_end;
  uint16_t authority_end;
  uint16_t rcode;
  uint16_t ede;
  uint8_t name_size;
  uint8_t key_flags;  // DO and CD, as in keyHash()
  uint8_t frequency;
  bool authentic_data : 1;
  bool has_ede : 1;
  bool is_denial : 1;
  bool is_failure : 1;
  bool prefetched : 1;
  bool has_failed : 1;  // the upstream, when it was asked again
  Place place : 2;

  uint8_t* name() { return reinterpret_cast<uint8_t*>(this + 1); }
  const uint8_t* name() const { return reinterpret_cast<const uint8_t*>(this + 1); }
  uint8_t* body() { return name() + name_size; }
  const uint8_t* body() const { return name() + name_size; }
  static size_t align(size_t offset) { return (offset + 1) & ~size_t{1}; }
  const uint16_t* ttlOffsets() const {
    const size_t offset = align(sizeof(Entry) + name_size + body_size);
    return reinterpret_cast<const uint16_t*>(reinterpret_cast<const uint8_t*>(this) + offset);
  }

  bool isPlain(Plain plain) const {
    return !has_ede && rcode <= dns::kRcodeMask && !(plain.single_answer && answers > 1) &&
           !(plain.answers_only && answers > 0 && proof_end != body_size);
  }
  uint64_t counts() const {  // as they stand in the header
    return uint64_t{1} << 48 | uint64_t{answers} << 32 | uint64_t{authorities} << 16 | additionals;
  }

  ResponseView view() const {
    ResponseView view;
    view.rcode = static_cast<dns::Rcode>(rcode);
    view.authentic_data = authentic_data;
    view.answers = answers;
    view.authorities = authorities;
    view.additionals = additionals;
    view.proofs = proofs;
    view.answer_size = answer_size;
    view.proof_end = proof_end;
    view.authority_end = authority_end;
    if (has_ede) view.ede = ede;
    view.body = {body(), body_size};
    view.ttl_offsets = {ttlOffsets(), ttl_count};
    return view;
  }

  static size_t offsetsAt(const dns::Query& query, const ResponseView& view) {
    return align(sizeof(Entry) + query.qname_size + view.body.size());
  }
  static size_t sizeFor(const dns::Query& query, const ResponseView& view) {
    return offsetsAt(query, view) + view.ttl_offsets.size() * sizeof(uint16_t);
  }

  static Entry* make(const dns::Query& query, const StoredResponse& response, const Pool& pool) {
    const ResponseView& view = response.sections;
    const size_t offsets = offsetsAt(query, view);
    const size_t size = sizeFor(query, view);
    const uint32_t signed_seconds = signatureSecondsLeft(response);
    auto* entry = ::new (::operator new(size)) Entry{};
    entry->size = static_cast<uint32_t>(size);
    entry->qtype = query.qtype;
    entry->body_size = static_cast<uint16_t>(view.body.size());
    entry->ttl_count = static_cast<uint16_t>(view.ttl_offsets.size());
    entry->answers = view.answers;
    entry->authorities = view.authorities;
    entry->additionals = view.additionals;
    entry->proofs = view.proofs;
    entry->answer_size = view.answer_size;
    entry->proof_end = view.proof_end;
    entry->authority_end = view.authority_end;
    entry->rcode = dns::code(view.rcode);
    entry->ede = view.ede.value_or(0);
    entry->has_ede = view.ede.has_value();
    entry->name_size = static_cast<uint8_t>(query.qname_size);
    entry->authentic_data = view.authentic_data;
    std::copy(query.name().begin(), query.name().end(), entry->name());
    std::copy(view.body.begin(), view.body.end(), entry->body());
    std::copy(view.ttl_offsets.begin(), view.ttl_offsets.end(),
              reinterpret_cast<uint16_t*>(reinterpret_cast<uint8_t*>(entry) + offsets));
    for (const uint16_t offset : view.ttl_offsets) {  // as long as the entry lives, no less and no more than it may
      uint8_t* ttl = entry->body() + offset;
      dns::store32(ttl, std::min(clampTtl(dns::load32(ttl), pool), signed_seconds));
    }
    return entry;
  }
  static void destroy(Entry* entry) { ::operator delete(entry); }
};

namespace {

uint8_t keyFlags(const dns::Query& query) {
  return static_cast<uint8_t>((query.dnssec_ok ? 2 : 0) | ((query.flags & dns::kFlagCd) != 0 ? 1 : 0));
}

}  // namespace

Cache::Cache(Options options) : options_(options), slots_(kFirstSlots) {
  success_.capacity = options_.success.capacity;
  denial_.capacity = options_.denial.capacity;
}

Cache::~Cache() {
  for (const Slot& slot : slots_) Entry::destroy(slot.entry);
}

uint64_t Cache::keyHash(const dns::Query& query) {
  // The name's hash is seeded and secret; type and flags are spread over all bits by an odd factor.
  const uint64_t rest = uint64_t{query.qtype} << 2 | keyFlags(query);
  return query.hash ^ (rest + 1) * 0x9e3779b97f4a7c15u;
}

bool Cache::matches(const Entry& entry, const dns::Query& query) {
  return entry.qtype == query.qtype && entry.key_flags == keyFlags(query) && entry.name_size == query.qname_size &&
         records::equalOctets(entry.name(), query.qname, entry.name_size);
}

void Cache::prefetchSlot(const dns::Query& query) const { __builtin_prefetch(&slots_[home(keyHash(query))]); }

void Cache::prefetchEntry(const dns::Query& query) const {
  const uint64_t hash = keyHash(query);
  const Slot& slot = slots_[home(hash)];
  if (slot.hash != hash || slot.entry == nullptr) return;
  for (int line = 0; line < 3; ++line) __builtin_prefetch(reinterpret_cast<const char*>(slot.entry) + line * 64);
}

// Linear probing; a slot is erased by moving its successors up, so an empty one ends the search.
Cache::Slot* Cache::findSlot(uint64_t hash, const dns::Query& query) {
  for (size_t i = home(hash); slots_[i].entry != nullptr; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].hash == hash && matches(*slots_[i].entry, query)) return &slots_[i];
  }
  return nullptr;
}

Cache::Found Cache::find(const dns::Query& query, BootClock::time_point now) {
  const Slot* slot = findSlot(keyHash(query), query);
  const int64_t now_ns = nanosecondsOf(now);
  if (slot == nullptr || now_ns >= slot->entry->usable_ns) {
    ++statistics_.misses;
    return {};
  }
  Entry& entry = *slot->entry;
  Found found;
  found.state = now_ns < entry.expires_ns ? State::kFresh : State::kStale;
  found.response = entry.view();
  found.age_seconds = options_.keep_ttl ? 0 : static_cast<uint32_t>((now_ns - entry.inserted_ns) / kSecond);
  found.wants_prefetch = noteHit(entry, now);
  found.wants_refresh = now_ns >= entry.recheck_ns;
  found.has_failed = entry.has_failed;
  ++(found.state == State::kFresh ? statistics_.hits : statistics_.stale_hits);
  return found;
}

Cache::Written Cache::writeFresh(const dns::Query& query, size_t limit, BootClock::time_point now, Plain plain) {
  const Slot* slot = findSlot(keyHash(query), query);
  const int64_t now_ns = nanosecondsOf(now);
  if (slot == nullptr || now_ns >= slot->entry->expires_ns || !slot->entry->isPlain(plain)) return {};
  Entry& entry = *slot->entry;
  // AD only for clients that know it (RFC 6840 §5.8).
  const bool authentic = entry.authentic_data && (query.dnssec_ok || (query.flags & dns::kFlagAd) != 0);
  const auto flags = static_cast<uint16_t>(dns::kFlagRa | (authentic ? dns::kFlagAd : 0) | entry.rcode);
  const size_t size = dns::writePlainResponse(query, {entry.body(), entry.body_size}, entry.counts(), limit, flags);
  if (size == 0) return {};
  const auto age = static_cast<uint32_t>((now_ns - entry.inserted_ns) / kSecond);
  if (age > 0 && !options_.keep_ttl) {
    uint8_t* records = query.message + query.question_end;
    for (const uint16_t offset : std::span(entry.ttlOffsets(), entry.ttl_count)) {
      const uint32_t ttl = dns::load32(records + offset);
      dns::store32(records + offset, ttl - std::min(ttl, age));
    }
  }
  ++statistics_.hits;
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
  ++statistics_.prefetches;
  return true;
}

void Cache::noteRefresh(const dns::Query& query, BootClock::time_point now) {
  if (const Slot* slot = findSlot(keyHash(query), query)) {
    slot->entry->recheck_ns = nanosecondsOf(now + kRefreshTime);
  }
}

void Cache::noteFailure(const dns::Query& query, BootClock::time_point now) {
  const Slot* slot = findSlot(keyHash(query), query);
  if (slot == nullptr || slot->entry->is_failure) return;
  slot->entry->has_failed = true;
  slot->entry->recheck_ns = nanosecondsOf(now + options_.recheck);
}

void Cache::insert(const dns::Query& query, const StoredResponse& response, BootClock::time_point now) {
  const bool failure = isFailure(response);
  const uint64_t hash = keyHash(query);
  const int64_t now_ns = nanosecondsOf(now);
  const size_t size = Entry::sizeFor(query, response.sections);
  const bool keep = isWorthKeeping(response, size);
  bool was_main = false;
  uint8_t frequency = 0;
  if (const Slot* slot = findSlot(hash, query)) {
    Entry* old = slot->entry;
    if (failure && !old->is_failure && now_ns < old->usable_ns) return;
    // What has ended is no longer true if the upstream says something else, even if that must not be kept.
    if (!keep && (failure || now_ns < old->expires_ns)) return;
    was_main = old->place == kMain;  // a refreshed answer keeps its standing
    frequency = old->frequency;
    remove(old);
  }
  if (!keep) return;
  Fifo& fifo = fifoOf(response.kind);
  const bool proven = was_main || wasGhost(fifo, hash);
  const Place place = proven ? kMain : size > kMeanEntrySize ? kLarge : kSmall;
  makeRoom(fifo, size, place);

  const Pool& kept_in = pool(response.kind);
  Entry* entry = Entry::make(query, response, kept_in);
  const int64_t ttl_ns = failure ? options_.failure_ttl.count() : clampTtl(response.ttl_seconds, kept_in) * kSecond;
  const int64_t signed_ns = int64_t{signatureSecondsLeft(response)} * kSecond;
  const int64_t stale_ns = failure ? 0 : std::chrono::nanoseconds(options_.serve_stale).count();
  entry->hash = hash;
  entry->key_flags = keyFlags(query);
  entry->is_denial = response.kind != ResponseKind::kPositive;
  entry->is_failure = failure;
  entry->inserted_ns = now_ns;
  entry->expires_ns = now_ns + std::min(ttl_ns, signed_ns);
  entry->usable_ns = now_ns + std::min(ttl_ns + stale_ns, signed_ns);
  entry->last_hit_ns = now_ns;
  entry->frequency = frequency;
  entry->place = place;
  push(fifo.queues[place], entry);
  bytes_ += entry->size;
  insertSlot(hash, entry);
  ++statistics_.insertions;
}

bool Cache::isWorthKeeping(const StoredResponse& response, size_t entry_size) const {
  const Pool& kept_in = pool(response.kind);
  if (response.kind == ResponseKind::kUncacheable || !kept_in.enabled || kept_in.capacity == 0) return false;
  if (isFailure(response) && (options_.failure_ttl.count() == 0 || response.sections.rcode == dns::Rcode::kFormErr)) {
    return false;
  }
  if (signatureSecondsLeft(response) == 0) return false;
  return entry_size <= std::max(kept_in.capacity * kMeanEntrySize / kLargestShare, kMeanEntrySize);
}

Cache::Fifo& Cache::fifoOf(const Entry& entry) { return entry.is_denial ? denial_ : success_; }

size_t Cache::Fifo::byteCapacity() const { return capacity * kMeanEntrySize; }

bool Cache::Fifo::isLargeShareFull(size_t more_bytes) const {
  return (queues[kLarge].bytes + more_bytes) * kFreshShare > byteCapacity();
}

// Whose oldest entry is to go. REQUIRES: there is one.
Cache::Place Cache::Fifo::victim() const {
  const Queue& small = queues[kSmall];
  const Queue& large = queues[kLarge];
  const bool share_is_used = (small.size + large.size) * kFreshShare >= capacity ||
                             (small.bytes + large.bytes) * kFreshShare >= byteCapacity();
  if (queues[kMain].size > 0 && (small.size + large.size == 0 || !share_is_used)) return kMain;
  if (small.size == 0 || large.size == 0) return small.size == 0 ? kLarge : kSmall;
  return large.head->inserted_ns < small.head->inserted_ns ? kLarge : kSmall;
}

void Cache::makeRoom(Fifo& fifo, size_t bytes, Place place) {
  while (place == kLarge && fifo.queues[kLarge].size > 0 && fifo.isLargeShareFull(bytes)) evictHead(fifo, kLarge);
  // Each step lets an entry go or uses up some entry's frequency, so it ends.
  while (fifo.size() > 0 && (fifo.size() >= fifo.capacity || fifo.bytes() + bytes > fifo.byteCapacity())) {
    evictHead(fifo, fifo.victim());
  }
}

// Lets the oldest entry of a queue go: of the new ones if it was not asked for again, of the main queue if it was not
// asked for lately. Else it goes to the end of the main queue.
void Cache::evictHead(Fifo& fifo, Place place) {
  Queue& queue = fifo.queues[place];
  Entry* entry = queue.head;
  if (entry->frequency <= (place == kMain ? 0 : 1)) {
    if (place != kMain) rememberGhost(fifo, entry->hash);
    ++statistics_.evictions;
    return remove(entry);
  }
  unlink(queue, entry);
  entry->frequency = place == kMain ? static_cast<uint8_t>(entry->frequency - 1) : 0;
  entry->place = kMain;
  push(fifo.queues[kMain], entry);
}

void Cache::remove(Entry* entry) {
  unlink(fifoOf(*entry).queues[entry->place], entry);
  eraseSlot(entry);
  bytes_ -= entry->size;
  Entry::destroy(entry);
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
    fifo.ghosts.resize(size);
  }
  fifo.ghosts[hash >> 16 & (fifo.ghosts.size() - 1)] = hash;
}

bool Cache::wasGhost(const Fifo& fifo, uint64_t hash) const {
  return !fifo.ghosts.empty() && fifo.ghosts[hash >> 16 & (fifo.ghosts.size() - 1)] == hash;
}

void Cache::insertSlot(uint64_t hash, Entry* entry) {
  if ((live_ + 1) * 2 > slots_.size()) grow();
  size_t i = home(hash);
  while (slots_[i].entry != nullptr) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {hash, entry};
  ++live_;
}

void Cache::eraseSlot(const Entry* entry) {
  const size_t mask = slots_.size() - 1;
  size_t hole = home(entry->hash);
  while (slots_[hole].entry != entry) hole = (hole + 1) & mask;
  // Whatever follows moves up into the hole, unless its home lies behind it.
  for (size_t i = (hole + 1) & mask; slots_[i].entry != nullptr; i = (i + 1) & mask) {
    if (((i - home(slots_[i].hash)) & mask) >= ((i - hole) & mask)) {
      slots_[hole] = slots_[i];
      hole = i;
    }
  }
  slots_[hole] = {};
  --live_;
}

void Cache::grow() {
  Slots old(slots_.size() * 2);
  old.swap(slots_);
  live_ = 0;
  for (const Slot& slot : old) {
    if (slot.entry != nullptr) insertSlot(slot.hash, slot.entry);
  }
}

}  // namespace idetcd::resolve
