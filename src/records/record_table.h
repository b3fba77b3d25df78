// A hash table of entries: one writer, any number of readers that never wait. Open addressing over cache lines of eight
// slots; a probe ends at a bucket with an empty slot, and never passes kMaxProbe buckets: the table grows instead.
//
//   word: tag:16 | pointer:48      0: empty      1: a tombstone (was taken, and a probe may have gone past it)
//
// The tag is the top of the hash, made odd; a match is a hint, the name decides. A published entry never moves: a
// replacement takes its slot with one store, growth publishes a new array. Readers hold neither beyond their
// ReadSection (epoch.h).
#pragma once

#include "base/hash.h"
#include "records/entry.h"
#include "records/entry_arena.h"
#include "records/epoch.h"

namespace idetcd::records {

class RecordTable {
 public:
  RecordTable(EpochDomain& epochs, HashSeed seed);
  // REQUIRES: no reader looks at this table, and the writer is done. It may wait for readers of other tables.
  ~RecordTable();
  RecordTable(const RecordTable&) = delete;
  RecordTable& operator=(const RecordTable&) = delete;

  // --- readers, inside a ReadSection. `hash` is hashBytes(name, seed()) ---
  HashSeed seed() const { return seed_; }
  // The three passes over a batch: prefetchBucket for all, prefetchEntry for all, find for all.
  void prefetchBucket(uint64_t hash) const { __builtin_prefetch(&directory()->bucket(hash, 0)); }
  void prefetchEntry(uint64_t hash) const {
    const Directory& dir = *directory();
    if (dir.mask < kCachedBuckets) return;
    const uint64_t word = firstTagged(dir.bucket(hash, 0), tagOf(hash));  // only a hint: find() looks again
    if (word == kEmpty) return;
    __builtin_prefetch(pointerOf(word));
    __builtin_prefetch(reinterpret_cast<const char*>(pointerOf(word)) + 64);
  }
  // Inlined is the common case: the first slot of the home bucket with this tag, or none and an empty slot.
  [[gnu::always_inline]] const Entry* find(uint64_t hash, std::span<const uint8_t> name) const {
    const Directory& dir = *directory();
    const Bucket& home = dir.bucket(hash, 0);
    const uint64_t word = firstTagged(home, tagOf(hash));
    if (word != kEmpty) {
      if (pointerOf(word)->isNamed(name)) [[likely]]
        return pointerOf(word);
    } else if (hasEmptySlot(home)) {
      return nullptr;
    }
    return findInProbe(dir, hash, name);
  }
  // Where a scan in steps stands. Made anew for each scan.
  struct ScanPosition {
    uint64_t directory = 0;  // 0: none yet
    size_t bucket = 0;
  };
  enum class ScanStep : uint8_t {
    kMore,
    kDone,
    kMoved,  // the entries are in other places than when the scan began: it is to be made anew
  };
  // Calls visit(const Entry&) for every entry of the next kScanBuckets buckets. Each step has a ReadSection of its own,
  // so that a scan holds no memory back for longer than it takes to look at some thousand entries. What changes between
  // steps is seen as it was or as it is, once, twice or not at all; what does not change is seen once.
  template <typename Visit>
  ScanStep scan(ScanPosition& position, Visit visit) const {
    const Directory& dir = *directory();
    if (position.directory == 0) position.directory = dir.number;
    if (position.directory != dir.number) return ScanStep::kMoved;
    const size_t end = std::min(position.bucket + kScanBuckets, dir.mask + 1);
    for (; position.bucket < end; ++position.bucket) {
      for (const auto& slot : dir.buckets[position.bucket].slots) {
        const uint64_t word = slot.load(std::memory_order_seq_cst);  // see EpochDomain::Reader::enter()
        if (word > kTombstone) visit(std::as_const(*pointerOf(word)));
      }
    }
    return end <= dir.mask ? ScanStep::kMore : ScanStep::kDone;
  }
  EpochDomain& epochs() const { return epochs_; }  // where a reader signs on; any thread
  // Memory of entries and buckets. Any thread.
  size_t bytes() const { return arena_.bytes() + buckets_.load(std::memory_order_relaxed) * sizeof(Bucket); }

  // --- writer ---
  EntryArena& arena() { return arena_; }
  // Publishes `entry` (made in arena()) in place of its name's, which is freed when no reader holds it.
  void put(Entry* entry);
  bool erase(std::span<const uint8_t> name);
  Entry* findForWrite(std::span<const uint8_t> name);
  size_t size() const { return live_; }
  // Makes room for as many names, which it would else make step by step.
  void reserve(size_t names);
  // Calls visit(Entry&) for every entry. The table must not be changed meanwhile.
  template <typename Visit>
  void forEach(Visit visit) const {
    const Directory& dir = *directory();
    for (size_t b = 0; b <= dir.mask; ++b) {
      for (const auto& slot : dir.buckets[b].slots) {
        const uint64_t word = slot.load(std::memory_order_relaxed);
        if (word > kTombstone) visit(*pointerOf(word));
      }
    }
  }

 private:
  static constexpr size_t kSlots = 8;
  static constexpr size_t kMaxProbe = 16;
  static constexpr size_t kFirstBuckets = 16;
  static constexpr size_t kScanBuckets = 256;
  static constexpr size_t kFullTenths = 7;  // of the slots that are taken when the table grows
  static constexpr size_t kCachedBuckets = 1024;  // with fewer, some 6,000 names, all of the table is in the cache
  static constexpr unsigned kPointerBits = 48;
  static constexpr uint64_t kEmpty = 0;
  static constexpr uint64_t kTombstone = 1;

  struct alignas(64) Bucket {
    std::atomic<uint64_t> slots[kSlots];
  };
  struct Directory {
    Bucket* buckets;
    size_t mask;      // number of buckets - 1
    uint64_t number;  // from 1, in the order in which they took each other's place
    Bucket& bucket(uint64_t hash, size_t probe) const { return buckets[(hash + probe) & mask]; }
  };
  // Where a name is, or where it would go.
  struct Position {
    std::atomic<uint64_t>* slot = nullptr;  // of the name; else of the first free place; else null
    Bucket* bucket = nullptr;
    bool found = false;
  };

  static uint64_t tagOf(uint64_t hash) { return hash >> kPointerBits | 1; }
  static Entry* pointerOf(uint64_t word) {
    return reinterpret_cast<Entry*>(word & ((uint64_t{1} << kPointerBits) - 1));
  }
  static uint64_t wordOf(uint64_t hash, Entry* entry);
  // The word of the first slot with this tag; kEmpty if there is none.
  static uint64_t firstTagged(const Bucket& bucket, uint64_t tag) {
#pragma GCC unroll 8
    for (const auto& slot : bucket.slots) {
      const uint64_t word = slot.load(std::memory_order_seq_cst);  // see EpochDomain::Reader::enter()
      if (word >> kPointerBits == tag) return word;
    }
    return kEmpty;
  }
  // No probe has gone past a bucket that has one: a slot only becomes empty again beside another (see erase()).
  static bool hasEmptySlot(const Bucket& bucket) {
    bool has_empty = false;
    for (const auto& slot : bucket.slots) has_empty |= slot.load(std::memory_order_seq_cst) == kEmpty;
    return has_empty;
  }

  static Directory* makeDirectory(size_t buckets, uint64_t number);
  static void freeDirectory(void* owner, void* directory);
  static void freeEntry(void* owner, void* entry);

  const Directory* directory() const { return directory_.load(std::memory_order_seq_cst); }
  static const Entry* findInProbe(const Directory& dir, uint64_t hash, std::span<const uint8_t> name);
  uint64_t hashOf(std::span<const uint8_t> name) const { return hashBytes(name.data(), name.size(), seed_); }
  static Position locate(const Directory& dir, uint64_t hash, std::span<const uint8_t> name);
  void retire(EpochDomain::Free free, void* object);
  void makeRoom();
  void rebuild(size_t buckets);
  static bool insertInto(const Directory& dir, uint64_t hash, Entry* entry);

  EpochDomain& epochs_;
  const HashSeed seed_;
  EntryArena arena_;
  std::atomic<Directory*> directory_;
  std::atomic<size_t> buckets_{kFirstBuckets};  // of it; relaxed: a number, and nothing that depends on it
  size_t live_ = 0;
  size_t tombstones_ = 0;
  size_t retired_since_reclaim_ = 0;
};

}  // namespace idetcd::records
