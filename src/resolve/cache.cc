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
// Memory is bounded in octets too: a capacity of N entries holds at most N times this much.
constexpr size_t kMeanEntrySize = 1024;
constexpr uint8_t kMaxFrequency = 3;
constexpr size_t kFreshShare = 10;  // the small queue takes one part in so many

uint32_t clampTtl(uint32_t ttl, const Cache::Pool& pool) {
  return std::min(std::max(ttl, pool.min_ttl_seconds), pool.max_ttl_seconds);
}

int64_t nanosecondsOf(BootClock::time_point time) { return time.time_since_epoch().count(); }

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

// One block: this, the folded name, the body, then the TTL offsets (aligned).
struct Cache::Entry {
  Entry* next;
  Entry* previous;
  uint64_t hash;
  int64_t inserted_ns;
  int64_t expires_ns;
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
  bool in_main : 1;
  bool prefetched : 1;
  bool has_failed : 1;  // the upstream, when it was asked again

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

  static Entry* make(const dns::Query& query, const StoredResponse& response, const Pool& pool) {
    const ResponseView& view = response.sections;
    const size_t offsets = align(sizeof(Entry) + query.qname_size + view.body.size());
    const size_t size = offsets + view.ttl_offsets.size() * sizeof(uint16_t);
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
      dns::store32(ttl, clampTtl(dns::load32(ttl), pool));
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
  const int64_t stale_ns = std::chrono::nanoseconds(options_.serve_stale).count();
  if (slot == nullptr || now_ns >= slot->entry->expires_ns + (slot->entry->is_failure ? 0 : stale_ns)) {
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
  if (response.kind == ResponseKind::kUncacheable) return forgetStale(query, response, now);
  const bool failure = response.kind == ResponseKind::kFailure;
  const bool denial = response.kind != ResponseKind::kPositive;
  const Pool& kept_in = pool(response.kind);
  if (!kept_in.enabled || kept_in.capacity == 0 || (failure && options_.failure_ttl.count() == 0)) return;

  const uint64_t hash = keyHash(query);
  const int64_t now_ns = nanosecondsOf(now);
  bool was_main = false;
  uint8_t frequency = 0;
  if (const Slot* slot = findSlot(hash, query)) {
    Entry* old = slot->entry;
    const int64_t stale_until = old->expires_ns + std::chrono::nanoseconds(options_.serve_stale).count();
    if (failure && !old->is_failure && now_ns < stale_until) return;
    was_main = old->in_main;  // a refreshed answer keeps its standing
    frequency = old->frequency;
    remove(old);
  }
  Entry* entry = Entry::make(query, response, kept_in);
  entry->hash = hash;
  entry->key_flags = keyFlags(query);
  entry->is_denial = denial;
  entry->is_failure = failure;
  entry->inserted_ns = now_ns;
  entry->expires_ns =
      now_ns + (failure ? options_.failure_ttl.count() : clampTtl(response.ttl_seconds, kept_in) * kSecond);
  entry->last_hit_ns = now_ns;
  entry->frequency = frequency;
  ++statistics_.insertions;
  Fifo& fifo = fifoOf(*entry);
  makeRoom(fifo, entry->size);
  entry->in_main = was_main || wasGhost(fifo, hash);
  push(entry->in_main ? fifo.main : fifo.fresh, entry);
  fifo.bytes += entry->size;
  bytes_ += entry->size;
  insertSlot(hash, entry);
}

// What has ended is no longer true if the upstream says something else, even if that must not be kept.
void Cache::forgetStale(const dns::Query& query, const StoredResponse& newer, BootClock::time_point now) {
  const dns::Rcode rcode = newer.sections.rcode;
  if (rcode != dns::Rcode::kNoError && rcode != dns::Rcode::kNxDomain) return;
  const Slot* slot = findSlot(keyHash(query), query);
  if (slot != nullptr && nanosecondsOf(now) >= slot->entry->expires_ns) remove(slot->entry);
}

Cache::Fifo& Cache::fifoOf(const Entry& entry) { return entry.is_denial ? denial_ : success_; }

void Cache::makeRoom(Fifo& fifo, size_t bytes) {
  while (fifo.fresh.size + fifo.main.size > 0 &&
         (fifo.fresh.size + fifo.main.size >= fifo.capacity || fifo.bytes + bytes > fifo.capacity * kMeanEntrySize)) {
    evictOne(fifo);
  }
}

// Lets one entry go: of the small queue the oldest that was not asked for again, of the main queue the oldest that was
// not asked for lately. Each step ends or uses up some entry's frequency, so it ends.
void Cache::evictOne(Fifo& fifo) {
  for (;;) {
    const bool from_fresh =
        fifo.main.size == 0 || (fifo.fresh.size > 0 && fifo.fresh.size * kFreshShare >= fifo.capacity);
    Entry* entry = (from_fresh ? fifo.fresh : fifo.main).head;
    if (entry->frequency <= (from_fresh ? 1 : 0)) {
      if (from_fresh) rememberGhost(fifo, entry->hash);
      ++statistics_.evictions;
      return remove(entry);
    }
    unlink(from_fresh ? fifo.fresh : fifo.main, entry);
    entry->frequency = from_fresh ? 0 : static_cast<uint8_t>(entry->frequency - 1);
    entry->in_main = true;
    push(fifo.main, entry);
  }
}

void Cache::remove(Entry* entry) {
  Fifo& fifo = fifoOf(*entry);
  unlink(entry->in_main ? fifo.main : fifo.fresh, entry);
  eraseSlot(entry);
  fifo.bytes -= entry->size;
  bytes_ -= entry->size;
  Entry::destroy(entry);
}

void Cache::push(Queue& queue, Entry* entry) {
  entry->next = nullptr;
  entry->previous = queue.tail;
  (queue.tail != nullptr ? queue.tail->next : queue.head) = entry;
  queue.tail = entry;
  ++queue.size;
}

void Cache::unlink(Queue& queue, Entry* entry) {
  (entry->previous != nullptr ? entry->previous->next : queue.head) = entry->next;
  (entry->next != nullptr ? entry->next->previous : queue.tail) = entry->previous;
  --queue.size;
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
