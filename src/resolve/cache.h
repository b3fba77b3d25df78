// The cache of upstream answers of one server block on one loop. One thread; no allocation on a hit.
//
// Keyed by name, type, class IN, DO and CD. Entries are single blocks of memory in wire form, found by open addressing
// with a tag in the slot, as in the record table. Positive and negative answers have separate capacities, each kept by
// S3-FIFO: new entries pass through a small queue, and only what is asked for again gets into the main one, so that a
// scan of random names evicts nothing but itself. Capacities are kept in bytes too: new entries of more than the mean
// size have a queue and a share of bytes of their own, so that neither do large answers; one of more than a hundredth
// of all the bytes is not kept.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "dns/name.h"
#include "dns/query.h"
#include "records/entry_arena.h"
#include "resolve/stored_response.h"

namespace idetcd::resolve {

class Cache {
 public:
  struct Pool {
    size_t capacity = 9984;  // entries
    uint32_t max_ttl_seconds = 3600;
    uint32_t min_ttl_seconds = 5;
    bool enabled = true;
  };
  struct Prefetch {
    uint32_t amount = 0;  // hits after which a name is worth keeping warm; 0: none is
    std::chrono::nanoseconds gap = std::chrono::minutes(1);  // between hits, at most
    uint32_t percentage = 10;                                // of the TTL that is left
  };
  struct Options {
    Pool success{};
    Pool denial{.capacity = 9984, .max_ttl_seconds = 1800};
    Prefetch prefetch{};
    std::chrono::seconds serve_stale{0};  // how long after their end answers may be served; 0: never
    std::chrono::nanoseconds failure_ttl = std::chrono::seconds(5);  // 0: not kept
    std::chrono::nanoseconds recheck = std::chrono::seconds(30);     // RFC 8767 §5: the failure recheck timer
    bool keep_ttl = false;                                           // do not count TTLs down
  };

  // Of responses that must not be written as they are kept.
  struct Plain {
    bool answers_only = false;   // nothing beside an answer and its proofs (`minimal`)
    bool single_answer = false;  // else they are rotated (`loadbalance`)
  };

  enum class State : uint8_t { kMiss, kFresh, kStale };
  // Valid until the cache is changed.
  struct Found {
    State state = State::kMiss;
    bool wants_prefetch = false;  // said once an entry, until it is replaced
    // Of a stale one: whether the upstream is to be asked now, and whether it has failed when it was asked last.
    bool wants_refresh = false;
    bool has_failed = false;
    ResponseView response;
    uint32_t age_seconds = 0;
  };

  // As long as a question may be on its way, about.
  static constexpr std::chrono::seconds kRefreshTime{5};

  struct Statistics {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t stale_hits = 0;
    uint64_t insertions = 0;
    uint64_t evictions = 0;
    uint64_t prefetches = 0;
  };

  explicit Cache(Options options);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // Two passes before find(), for a batch: each begins to fetch what the next one reads.
  void prefetchSlot(const dns::Query& query) const;
  void prefetchEntry(const dns::Query& query) const;
  Found find(const dns::Query& query, BootClock::time_point now);

  // What find() and writeStoredResponse() do for almost every hit, in one piece: a fresh answer, written over the query
  // with its TTLs counted down. `size` 0: there is none, or there is more to it; nothing has been counted then.
  struct Written {
    size_t size = 0;
    bool wants_prefetch = false;
  };
  Written writeFresh(const dns::Query& query, size_t limit, BootClock::time_point now, Plain plain);

  // Keeps `response` as the answer to `query`'s question, unless it must not be cached: then what has ended is
  // forgotten all the same. No longer than the first of its signatures is valid, not as a stale answer either. A
  // failure never replaces an answer that can still be served stale, and a FORMERR is about a message, not a name: it
  // is not kept.
  void insert(const dns::Query& query, const StoredResponse& response, BootClock::time_point now);

  // The upstream is asked for what is kept of `query`'s question: for kRefreshTime nobody else need ask. Nothing if
  // nothing is kept.
  void noteRefresh(const dns::Query& query, BootClock::time_point now);
  // It could not say: for `recheck` nobody need ask. Nothing if no answer is kept.
  void noteFailure(const dns::Query& query, BootClock::time_point now);

  const Options& options() const { return options_; }
  const Pool& pool(ResponseKind kind) const {
    return kind == ResponseKind::kPositive ? options_.success : options_.denial;
  }
  const Statistics& statistics() const { return statistics_; }
  size_t size() const { return live_; }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry;
  struct Slot {
    uint64_t hash = 0;
    Entry* entry = nullptr;  // null: empty
  };
  using Slots = std::vector<Slot, records::PageAllocator<Slot>>;
  // Intrusive, first in first out.
  struct Queue {
    Entry* head = nullptr;
    Entry* tail = nullptr;
    size_t size = 0;
    size_t bytes = 0;
  };
  enum Place : uint8_t { kSmall, kLarge, kMain };
  struct Fifo {
    size_t capacity = 0;
    // New entries take a tenth of the capacity together; those in kLarge, each above the mean size, a tenth of the
    // bytes at most, even while there is room for more: else a few of them could push out thousands of others.
    std::array<Queue, 3> queues;
    std::vector<uint64_t> ghosts;  // hashes of what left the new entries unasked for

    size_t size() const { return queues[kSmall].size + queues[kLarge].size + queues[kMain].size; }
    size_t bytes() const { return queues[kSmall].bytes + queues[kLarge].bytes + queues[kMain].bytes; }
    size_t byteCapacity() const;
    bool isLargeShareFull(size_t more_bytes) const;
    Place victim() const;
  };

  static uint64_t keyHash(const dns::Query& query);
  static bool matches(const Entry& entry, const dns::Query& query);
  size_t home(uint64_t hash) const { return hash & (slots_.size() - 1); }
  Slot* findSlot(uint64_t hash, const dns::Query& query);

  bool isWorthKeeping(const StoredResponse& response, size_t entry_size) const;
  Fifo& fifoOf(ResponseKind kind) { return kind == ResponseKind::kPositive ? success_ : denial_; }
  Fifo& fifoOf(const Entry& entry);
  void push(Queue& queue, Entry* entry);
  void unlink(Queue& queue, Entry* entry);
  void makeRoom(Fifo& fifo, size_t bytes, Place place);
  void evictHead(Fifo& fifo, Place place);
  void remove(Entry* entry);
  void rememberGhost(Fifo& fifo, uint64_t hash);
  bool wasGhost(const Fifo& fifo, uint64_t hash) const;

  void insertSlot(uint64_t hash, Entry* entry);
  void eraseSlot(const Entry* entry);
  void grow();

  bool noteHit(Entry& entry, BootClock::time_point now);

  const Options options_;
  Slots slots_;
  Fifo success_;
  Fifo denial_;
  size_t live_ = 0;   // entries in the slots
  size_t bytes_ = 0;  // of all entries
  Statistics statistics_;
};

}  // namespace idetcd::resolve
