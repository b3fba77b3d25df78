// From a hash to its entry: open addressing with linear probing. One thread.
//
// No call takes longer the more entries there are. A table that is half full is replaced by one of twice the size, whose
// pages become memory when they are written to. Each insertion from then on moves some entries, so that all have moved
// long before the new table is half full. Until then an entry is in one of the two.
#pragma once

#include <cstdlib>
#include <new>

#include "records/entry_arena.h"

namespace idetcd::resolver {

// Zeroes, of which those that are never written to are never made where there are many. REQUIRES: all bits zero is a T.
template <typename T>
class ZeroedArray {
 public:
  ZeroedArray() = default;
  explicit ZeroedArray(size_t size)
      : data_(static_cast<T*>(isMapped(size) ? records::mapPages(size * sizeof(T)) : std::calloc(size, sizeof(T)))),
        size_(size) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  ZeroedArray(ZeroedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ZeroedArray& operator=(ZeroedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ZeroedArray() { isMapped(size_) ? records::unmapPages(data_, size_ * sizeof(T)) : std::free(data_); }

  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<T> all() { return {data_, size_}; }

 private:
  static bool isMapped(size_t size) { return size >= (size_t{2} << 20) / sizeof(T); }
  T* data_ = nullptr;
  size_t size_ = 0;
};

// The entries are the caller's.
template <typename Entry>
class SlotTable {
 public:
  struct Bucket {
    uint64_t hash;
    Entry* entry;  // null: empty
  };
  using Slots = ZeroedArray<Bucket>;
  static constexpr size_t kFirstSlots = 1024;
  static constexpr size_t kStep = 8;  // slots that an insertion looks at to take over what is in them

  // `discard`: what becomes of an array that is not needed any more and that it may take long to free.
  explicit SlotTable(std::function<void(Slots)> discard) : slots_(kFirstSlots), discard_(std::move(discard)) {}

  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]); }
  // The slot that probably has the entry, without a search.
  const Entry* guess(uint64_t hash) const {
    const Bucket& slot = slots_[hash & (slots_.size() - 1)];
    return slot.hash == hash ? slot.entry : nullptr;
  }
  // The entry of this hash that `matches(entry)`, or null.
  template <typename Matches>
  Entry* find(uint64_t hash, Matches&& matches) const {
    Entry* found = findIn(slots_, hash, matches);
    return found == nullptr && !previous_.empty() ? findIn(previous_, hash, matches) : found;
  }
  void insert(uint64_t hash, Entry* entry);
  // REQUIRES: it is here.
  void erase(uint64_t hash, const Entry* entry);

  size_t size() const { return size_; }
  // The slots; entries are those that are not null.
  std::pair<Slots, Slots> release() && { return {std::move(slots_), std::move(previous_)}; }

 private:
  static void put(Slots& slots, uint64_t hash, Entry* entry);
  static bool eraseFrom(Slots& slots, uint64_t hash, const Entry* entry);
  template <typename Matches>
  static Entry* findIn(const Slots& slots, uint64_t hash, Matches& matches);
  void grow();
  void step();

  Slots slots_;
  Slots previous_;         // empty: all is in slots_
  size_t next_moved_ = 0;  // in previous_, before which nothing is left
  size_t size_ = 0;
  std::function<void(Slots)> discard_;
};

// A slot is erased by moving its successors up, so an empty one ends the search.
template <typename Entry>
template <typename Matches>
Entry* SlotTable<Entry>::findIn(const Slots& slots, uint64_t hash, Matches& matches) {
  const size_t mask = slots.size() - 1;
  for (size_t i = hash & mask; slots[i].entry != nullptr; i = (i + 1) & mask) {
    if (slots[i].hash == hash && matches(*slots[i].entry)) return slots[i].entry;
  }
  return nullptr;
}

template <typename Entry>
void SlotTable<Entry>::insert(uint64_t hash, Entry* entry) {
  if (!previous_.empty()) step();
  if ((size_ + 1) * 2 > slots_.size()) grow();
  put(slots_, hash, entry);
  ++size_;
}

template <typename Entry>
void SlotTable<Entry>::put(Slots& slots, uint64_t hash, Entry* entry) {
  const size_t mask = slots.size() - 1;
  size_t i = hash & mask;
  while (slots[i].entry != nullptr) i = (i + 1) & mask;
  slots[i] = {hash, entry};
}

template <typename Entry>
void SlotTable<Entry>::erase(uint64_t hash, const Entry* entry) {
  const bool was_here = eraseFrom(slots_, hash, entry) || eraseFrom(previous_, hash, entry);
  assert(was_here);
  --size_;
}

// False: it is not there.
template <typename Entry>
bool SlotTable<Entry>::eraseFrom(Slots& slots, uint64_t hash, const Entry* entry) {
  const size_t mask = slots.size() - 1;
  size_t hole = hash & mask;
  while (slots[hole].entry != entry) {
    if (slots[hole].entry == nullptr) return false;
    hole = (hole + 1) & mask;
  }
  // Whatever follows moves up into the hole, unless its home lies behind it.
  for (size_t i = (hole + 1) & mask; slots[i].entry != nullptr; i = (i + 1) & mask) {
    if (((i - slots[i].hash) & mask) >= ((i - hole) & mask)) {
      slots[hole] = slots[i];
      hole = i;
    }
  }
  slots[hole] = {};
  return true;
}

// All has moved from the table before: of size N it held N/2 entries, which takes 3N/2 looks, and the N/2 insertions
// since have looked 4N times.
template <typename Entry>
void SlotTable<Entry>::grow() {
  previous_ = std::exchange(slots_, Slots(slots_.size() * 2));
  next_moved_ = 0;
}

template <typename Entry>
void SlotTable<Entry>::step() {
  for (size_t i = 0; i < kStep; ++i) {
    const Bucket slot = previous_[next_moved_];
    if (slot.entry != nullptr) {
      eraseFrom(previous_, slot.hash, slot.entry);
      put(slots_, slot.hash, slot.entry);
    } else if (++next_moved_ == previous_.size()) {
      discard_(std::exchange(previous_, Slots()));
      return;
    }
  }
}

}  // namespace idetcd::resolver
