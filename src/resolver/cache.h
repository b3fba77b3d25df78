// The cache of upstream answers of one server block on one loop. One thread; no allocation on a hit, and no call takes
// longer the more entries there are. Keyed by name, type, class IN, DO and CD, found by open addressing with a tag in
// the slot. Positive and negative answers have capacities of their own, each kept by S3-FIFO, so that a scan evicts
// only itself. Capacities count bytes too: entries above the mean size share a queue of their own; one above a
// hundredth of all bytes is not kept.
#pragma once

#include "base/clock.h"
#include "base/executor.h"
#include "base/hash.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolver/counters.h"
#include "resolver/slot_table.h"
#include "resolver/stored_response.h"

namespace idetcd::resolver {

// Whether it has records of what was asked, be it at the end of a chain of CNAMEs.
bool hasAnswer(const StoredResponse& response);

class Cache {
 public:
  struct Pool {
    size_t capacity = 9984;  // entries
    uint32_t max_ttl_seconds = 3600;
    uint32_t min_ttl_seconds = 5;
    std::vector<dns::Name> disabled{};  // nothing is kept for names within these
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
    // Known records are answered as long as `serve_stale` allows, whatever else the upstream says: not only a failure
    // but a denial, too, is no reason to forget it.
    bool prefer_positive = false;
    bool keep_ttl = false;      // do not count TTLs down
    bool nxdomain_cut = false;  // findCut() finds something
  };

  // The responses that cannot be written as they are kept.
  struct FastPath {
    bool answers_only = false;   // nothing beside an answer and its proofs (`minimal`)
    bool single_answer = false;  // else they are rotated (`loadbalance`)
    bool no_others = true;       // what names others (namesOthers()) has to be looked at first
  };

  enum class State : uint8_t { kMiss, kFresh, kStale };
  // Valid until the cache is changed.
  struct Found {
    State state = State::kMiss;
    bool wants_prefetch = false;  // said once an entry, until it is replaced
    // Of a stale one: whether the upstream is to be asked now, and whether it has failed when it was asked last.
    bool wants_refresh = false;
    bool has_failed = false;
    const dns::PackedResponse* response = nullptr;  // of kFresh and kStale
    uint32_t age_seconds = 0;
  };

  // As long as a question may be on its way, about.
  static constexpr std::chrono::seconds kRefreshTime{5};

  // Frees large structures on `executor`; null: here.
  explicit Cache(Options options, const metrics::Scope& metrics = {}, std::shared_ptr<Executor> executor = nullptr);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // Two passes before find(), for a batch: each begins to fetch what the next one reads.
  void prefetchSlot(const dns::Query& query) const;
  void prefetchEntry(const dns::Query& query) const;
  // Asked of what names others (namesOthers()): whether it may be the answer. If not, nothing is found.
  using MayAnswer = std::function<bool(const dns::PackedResponse& response)>;
  Found find(const dns::Query& query, BootClock::time_point now, const MayAnswer& may_answer = {});

  // Does in one piece what find() and writePackedResponse() do for almost every hit: a fresh answer,
  // written over the query with its TTLs counted down. `size` 0: there is none, or there is more to it; nothing has been
  // counted then.
  struct Written {
    size_t size = 0;
    bool wants_prefetch = false;
    // It is not written only because of FastPath::no_others. Valid until the cache is changed.
    const dns::PackedResponse* names_others = nullptr;
  };
  Written writeFresh(const dns::Query& query, size_t limit, BootClock::time_point now, FastPath fast_path);

  // RFC 8020: where a name does not exist, none below it does. What is kept of the nearest name that denies `query`'s
  // so: one above it, or itself, denied to a question for another type. Fresh ones only; not a name that a CNAME has led
  // to, since the question was for another (RFC 6604 §3). Work is bounded by the labels of a name (127), and there is
  // none unless Options::nxdomain_cut is set. Valid until the cache is changed.
  struct Cut {
    const dns::PackedResponse* response = nullptr;  // null: no such name is known. Made for a question for `name`
    std::span<const uint8_t> name;
    uint32_t age_seconds = 0;
  };
  Cut findCut(const dns::Query& query, BootClock::time_point now);
  // A query was answered with what findCut() found.
  void noteCutHit() { counters_->cut_hits.add(); }

  // Keeps `response` as the answer to `query`'s question, unless it must not be cached: then what has ended is
  // forgotten all the same. No longer than the first of its signatures is valid, not as a stale answer either. A
  // failure, of whatever rcode (RFC 9520 §3.2), never replaces an answer that can still be served stale, nor does
  // anything without an answer where Options::prefer_positive is set.
  void insert(const dns::Query& query, const StoredResponse& response, BootClock::time_point now);

  // --- what outlives the process ---
  static constexpr uint8_t kCheckingDisabled = 1;
  static constexpr uint8_t kDnssecOk = 2;
  struct CacheRank {
    BootClock::time_point came_at{};
    uint8_t frequency = 0;  // of late
    bool proven = false;    // asked for again
  };
  // An answer with the TTLs that it came with. Valid during the call that it is passed to.
  struct Kept : CacheRank {
    std::span<const uint8_t> name;  // in lower case
    uint16_t qtype = 0;
    uint8_t key_flags = 0;
    const dns::PackedResponse* response = nullptr;
  };
  // Goes through all answers but failures, in steps between which the cache may change: what is there all the time is
  // visited once at least, if fewer answers come than are visited; it ends in any case. To begin anew ends the one before.
  void beginWalk();
  // The next `count`. False: that were all.
  bool walk(size_t count, const std::function<void(const Kept&)>& visit);
  // Keeps what walk() has shown as it was kept, unless it has ended or something is kept of its question.
  void restore(const dns::Query& query, const StoredResponse& response, const CacheRank& rank,
               BootClock::time_point now);

  // --- what an operator drops ---
  // Of the time between a question and its answer they know nothing: what was asked for before and comes after is kept.
  // Failures go, too. An answer goes by the name that it was asked for: an alias elsewhere that leads to such a name
  // stays, and so does the denial of a name above it (Options::nxdomain_cut).

  // All, whatever a flush by steps is at: no more work for many than for few, but for what is freed on the executor.
  // Returns how many there were.
  size_t flushAll();
  // Flushes the answers for `zone` and the names below it that are kept now: by flushSome(), in steps between which the
  // cache may change; several may be under way. Whoever gives up half-way lets go of it, on any thread.
  struct Flush;
  std::shared_ptr<Flush> beginFlush(const dns::Name& zone);
  // Looks at the next `count`. Nothing: there are more; else how many have gone, and this was the last call for it.
  std::optional<size_t> flushSome(const std::shared_ptr<Flush>& flush, size_t count);

  // The upstream is asked for what is kept of `query`'s question: for kRefreshTime no other query causes that. No
  // effect if nothing is kept.
  void noteRefresh(const dns::Query& query, BootClock::time_point now);
  // It had no answer: for `recheck` it is not asked again. No effect if no answer is kept.
  void noteFailure(const dns::Query& query, BootClock::time_point now);

  // A client is answered with what is stale.
  void noteServedStale() { counters_->served_stale.add(); }

  const Options& options() const { return options_; }
  // For what is kept from now on; what is there keeps the times that it has. Where a capacity becomes smaller, each
  // insertion lets up to a thousand go until it is kept to.
  void setOptions(const Options& options);
  const Pool& pool(ResponseKind kind) const {
    return kind == ResponseKind::kPositive ? options_.success : options_.denial;
  }
  size_t size() const { return table_.size(); }
  size_t bytes() const { return bytes_; }
  // To be read on any thread. Whoever holds it for longer than that keeps series of a cache that has gone.
  std::weak_ptr<const CacheCounters> counters() const { return counters_; }

 private:
  struct Entry;
  struct Discarded;
  using Table = SlotTable<Entry>;
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
    ZeroedArray<uint64_t> ghosts;  // hashes of what left the new entries unasked for

    size_t size() const { return queues[kSmall].size + queues[kLarge].size + queues[kMain].size; }
    size_t bytes() const { return queues[kSmall].bytes + queues[kLarge].bytes + queues[kMain].bytes; }
    size_t byteCapacity() const;
    bool isFull(size_t more_bytes) const;
    bool isLargeShareFull(size_t more_bytes) const;
    Place victim() const;
  };

  Table makeTable() const;
  static uint64_t keyHash(const dns::Query& query);
  static bool matches(const Entry& entry, const dns::Query& query);
  Entry* findEntry(uint64_t hash, const dns::Query& query) const {
    return table_.find(hash, [&query](const Entry& entry) { return matches(entry, query); });
  }

  bool isPreferred(const Entry& old, const StoredResponse& response, int64_t now_ns) const;
  bool isWorthKeeping(const dns::Query& query, const StoredResponse& response, size_t entry_size) const;
  Fifo& fifoOf(ResponseKind kind) { return kind == ResponseKind::kPositive ? success_ : denial_; }
  Fifo& fifoOf(const Entry& entry);
  CacheKindCounters& countersOf(const Entry& entry);
  void push(Queue& queue, Entry* entry);
  void unlink(Queue& queue, Entry* entry);
  void makeRoom(Fifo& fifo, size_t bytes, Place place);
  void evictHead(Fifo& fifo, Place place, size_t& chances);
  void remove(Entry* entry);
  void noteSize();
  void rememberGhost(Fifo& fifo, uint64_t hash);
  bool wasGhost(const Fifo& fifo, uint64_t hash) const;

  void add(const dns::Query& query, const StoredResponse& response, const CacheRank& rank, Fifo& fifo, Place place);
  Queue* walkedQueue(size_t index);
  bool isBeingFlushed(const Entry& entry);
  bool noteHit(Entry& entry, BootClock::time_point now);
  uint64_t cutHash(std::span<const uint8_t> name, uint8_t key_flags) const;
  Entry* findCutAt(std::span<const uint8_t> name, uint8_t key_flags) const;
  void addCut(Entry* entry);
  void removeCut(Entry* entry);

  Options options_;
  const std::shared_ptr<Executor> executor_;
  Table table_;                // of all entries, which are ours
  std::optional<Table> cuts_;  // of those that deny a name, by name; nothing: they are not asked for
  const HashSeed cut_seed_ = randomHashSeed();
  Fifo success_;
  Fifo denial_;
  size_t bytes_ = 0;  // of all entries
  size_t walk_queue_ = 0;
  Entry* walk_next_ = nullptr;  // in that queue; null: its first one, or it is through
  bool walk_begins_ = false;    // that queue
  size_t walk_left_ = 0;
  std::vector<std::shared_ptr<Flush>> flushes_;  // under way; those that only we hold were given up
  const std::shared_ptr<CacheCounters> counters_;
};

}  // namespace idetcd::resolver
