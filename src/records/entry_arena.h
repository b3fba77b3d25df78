// Memory for entries: size classes of 16 bytes cut from large chunks, with no header an entry and a free list a class.
// Freed memory is reused, never given back, so the arena keeps the table's largest size. Writer only.
#pragma once

#include <new>

#include "records/entry.h"

namespace idetcd::records {

// Zeroed pages, huge where they come free: a random look-up among a million names then spares a miss of the TLB.
void* mapPages(size_t size);
void unmapPages(void* pages, size_t size);

// For arrays that are looked into at random: what is large lies on such pages.
template <typename T>
class PageAllocator {
 public:
  using value_type = T;
  PageAllocator() = default;
  template <typename Other>
  PageAllocator(const PageAllocator<Other>&) {}  // NOLINT: as allocators are converted

  static T* allocate(size_t count) {
    return static_cast<T*>(isLarge(count) ? mapPages(count * sizeof(T)) : ::operator new(count * sizeof(T)));
  }
  static void deallocate(T* array, size_t count) {
    isLarge(count) ? unmapPages(array, count * sizeof(T)) : ::operator delete(array);
  }
  friend bool operator==(const PageAllocator&, const PageAllocator&) { return true; }

 private:
  static bool isLarge(size_t count) { return count >= (size_t{2} << 20) / sizeof(T); }
};

class EntryArena {
 public:
  EntryArena() = default;
  ~EntryArena();
  EntryArena(const EntryArena&) = delete;
  EntryArena& operator=(const EntryArena&) = delete;

  // An uninitialised entry of `size` bytes, header included. REQUIRES: sizeof(Entry) <= size <= 65535.
  Entry* allocate(size_t size);
  void free(Entry* entry);
  // Its memory. Any thread.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kGranule = Entry::kGranule;
  static constexpr size_t kMaxPooled = 1024;  // larger ones are rare: the heap's
  static constexpr size_t kFirstChunk = size_t{64} << 10;
  static constexpr size_t kMaxChunk = size_t{4} << 20;

  struct Chunk {
    void* pages;
    size_t size;
  };
  struct FreeNode {
    FreeNode* next;
  };

  void noteBytes(ptrdiff_t more) { bytes_.store(bytes() + static_cast<size_t>(more), std::memory_order_relaxed); }

  std::vector<Chunk> chunks_;
  std::atomic<size_t> bytes_{0};  // relaxed: a number, and nothing that depends on it
  uint8_t* bump_ = nullptr;
  size_t bump_left_ = 0;
  std::array<FreeNode*, kMaxPooled / kGranule + 1> free_{};
};

}  // namespace idetcd::records
