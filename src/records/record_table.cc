#include "records/record_table.h"

namespace idetcd::records {

RecordTable::RecordTable(EpochDomain& epochs, HashSeed seed)
    : epochs_(epochs), seed_(seed), directory_(makeDirectory(kFirstBuckets, 1)) {}

RecordTable::~RecordTable() {
  // The domain's retired objects of this table point into its arena: they go first. Readers may use other tables.
  epochs_.drain(this);
  forEach([this](Entry& entry) { arena_.free(&entry); });
  freeDirectory(nullptr, directory_.load(std::memory_order_relaxed));
}

uint64_t RecordTable::wordOf(uint64_t hash, Entry* entry) {
  const auto pointer = reinterpret_cast<uintptr_t>(entry);
  assert(pointer >> kPointerBits == 0);
  return tagOf(hash) << kPointerBits | pointer;
}

RecordTable::Directory* RecordTable::makeDirectory(size_t buckets, uint64_t number) {
  void* pages = mapPages(buckets * sizeof(Bucket));  // zeroed: every slot is empty
  auto* first = static_cast<Bucket*>(pages);
  std::uninitialized_default_construct_n(first, buckets);
  return new Directory{first, buckets - 1, number};
}

void RecordTable::freeDirectory(void* /*owner*/, void* directory) {
  const std::unique_ptr<Directory> dir(static_cast<Directory*>(directory));
  unmapPages(dir->buckets, (dir->mask + 1) * sizeof(Bucket));
}

void RecordTable::freeEntry(void* owner, void* entry) {
  static_cast<RecordTable*>(owner)->arena_.free(static_cast<Entry*>(entry));
}

RecordTable::Position RecordTable::locate(const Directory& dir, uint64_t hash, std::span<const uint8_t> name) {
  Position free_place;
  for (size_t probe = 0; probe < kMaxProbe; ++probe) {
    Bucket& bucket = dir.bucket(hash, probe);
    bool has_empty = false;
    for (auto& slot : bucket.slots) {
      const uint64_t word = slot.load(std::memory_order_relaxed);  // the writer reads its own stores
      if (word <= kTombstone) {
        has_empty |= word == kEmpty;
        if (free_place.slot == nullptr) free_place = {&slot, &bucket, false};
      } else if (word >> kPointerBits == tagOf(hash) && pointerOf(word)->isNamed(name)) {
        return {&slot, &bucket, true};
      }
    }
    if (has_empty) break;
  }
  return free_place;
}

// The whole of a look-up: for what find() has not decided.
const Entry* RecordTable::findInProbe(const Directory& dir, uint64_t hash, std::span<const uint8_t> name) {
  for (size_t probe = 0; probe < kMaxProbe; ++probe) {
    const Bucket& bucket = dir.bucket(hash, probe);
    for (const auto& slot : bucket.slots) {
      const uint64_t word = slot.load(std::memory_order_seq_cst);
      if (word >> kPointerBits == tagOf(hash) && pointerOf(word)->isNamed(name)) return pointerOf(word);
    }
    if (hasEmptySlot(bucket)) return nullptr;
  }
  return nullptr;
}

void RecordTable::put(Entry* entry) {
  const uint64_t hash = hashOf(entry->name());
  Position position = locate(*directory(), hash, entry->name());
  if (position.found) {
    Entry* old = pointerOf(position.slot->load(std::memory_order_relaxed));
    position.slot->store(wordOf(hash, entry), std::memory_order_seq_cst);
    retire(freeEntry, old);
    return;
  }
  const Directory* const before = directory();
  makeRoom();
  if (directory() != before) position = locate(*directory(), hash, entry->name());
  while (position.slot == nullptr) {
    rebuild((directory()->mask + 1) * 2);
    position = locate(*directory(), hash, entry->name());
  }
  position.slot->store(wordOf(hash, entry), std::memory_order_seq_cst);  // publishes what the entry holds
  ++live_;
}

bool RecordTable::erase(std::span<const uint8_t> name) {
  const Position position = locate(*directory(), hashOf(name), name);
  if (!position.found) return false;
  Entry* old = pointerOf(position.slot->load(std::memory_order_relaxed));
  // Where the bucket has an empty slot no probe has gone past it, and this slot can become empty as well.
  const bool has_empty = hasEmptySlot(*position.bucket);
  position.slot->store(has_empty ? kEmpty : kTombstone, std::memory_order_seq_cst);
  if (!has_empty) ++tombstones_;
  --live_;
  retire(freeEntry, old);
  return true;
}

Entry* RecordTable::findForWrite(std::span<const uint8_t> name) {
  const Position position = locate(*directory(), hashOf(name), name);
  return position.found ? pointerOf(position.slot->load(std::memory_order_relaxed)) : nullptr;
}

bool RecordTable::insertInto(const Directory& dir, uint64_t hash, Entry* entry) {
  const Position position = locate(dir, hash, entry->name());
  if (position.slot == nullptr) return false;
  position.slot->store(wordOf(hash, entry), std::memory_order_seq_cst);  // publishes what the entry holds
  return true;
}

// A reused tombstone stays counted until the next rebuild: the count is an upper bound.
void RecordTable::makeRoom() {
  const size_t slots = (directory()->mask + 1) * kSlots;
  const size_t max_load = slots / 10 * kFullTenths;
  if (live_ + tombstones_ < max_load) return;
  rebuild(live_ > slots / 2 ? (directory()->mask + 1) * 2 : directory()->mask + 1);
}

void RecordTable::reserve(size_t names) {
  const size_t before = directory()->mask + 1;
  size_t buckets = before;
  while (buckets * kSlots / 10 * kFullTenths <= names) buckets *= 2;
  if (buckets > before) rebuild(buckets);
}

void RecordTable::rebuild(size_t buckets) {
  Directory* old = directory_.load(std::memory_order_relaxed);
  Directory* fresh = makeDirectory(buckets, old->number + 1);
  bool complete = true;
  forEach([&](Entry& entry) { complete = complete && insertInto(*fresh, hashOf(entry.name()), &entry); });
  if (!complete) {  // one probe was too long even so
    freeDirectory(nullptr, fresh);
    rebuild(buckets * 2);
    return;
  }
  directory_.store(fresh, std::memory_order_seq_cst);
  buckets_.store(buckets, std::memory_order_relaxed);
  tombstones_ = 0;
  retire(freeDirectory, old);
  // Large, and what only adds names retires nothing else: so now, not at the next round.
  epochs_.reclaim();
}

void RecordTable::retire(EpochDomain::Free free, void* object) {
  constexpr size_t kReclaimEvery = 64;
  epochs_.retire(free, this, object);
  if (++retired_since_reclaim_ < kReclaimEvery) return;
  retired_since_reclaim_ = 0;
  epochs_.reclaim();
}

}  // namespace idetcd::records
