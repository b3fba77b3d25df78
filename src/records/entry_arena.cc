#include "records/entry_arena.h"

#include <new>
#include <sys/mman.h>

// AddressSanitizer treats the arena as the heap. (g++ signals it with a macro, clang with a feature.)
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IDETCD_ARENA_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define IDETCD_ARENA_ASAN
#endif
#ifdef IDETCD_ARENA_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#endif

namespace idetcd::records {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

void* mapPages(size_t size) {
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  if (size >= kHugePage) madvise(pages, size, MADV_HUGEPAGE);  // advice: a refusal costs speed only
  return pages;
}

void unmapPages(void* pages, size_t size) { munmap(pages, size); }

EntryArena::~EntryArena() {
  for (const Chunk& chunk : chunks_) {
    ASAN_UNPOISON_MEMORY_REGION(chunk.pages, chunk.size);
    unmapPages(chunk.pages, chunk.size);
  }
}

Entry* EntryArena::allocate(size_t size) {
  assert(sizeof(Entry) <= size && size <= 65535);
  const size_t rounded = (size + kGranule - 1) / kGranule * kGranule;
  if (rounded > kMaxPooled) {
    noteBytes(static_cast<ptrdiff_t>(rounded));
    return ::new (::operator new(rounded)) Entry;
  }
  FreeNode*& free_list = free_[rounded / kGranule];
  if (free_list != nullptr) {
    FreeNode* node = free_list;
    ASAN_UNPOISON_MEMORY_REGION(node, size);
    free_list = node->next;
    return ::new (node) Entry;
  }
  if (bump_left_ < rounded) {  // what is left of the old chunk, under 1 KiB, is given up
    const size_t chunk_size = chunks_.empty() ? kFirstChunk : std::min(chunks_.back().size * 2, kMaxChunk);
    bump_ = static_cast<uint8_t*>(mapPages(chunk_size));
    bump_left_ = chunk_size;
    ASAN_POISON_MEMORY_REGION(bump_, chunk_size);
    chunks_.push_back({bump_, chunk_size});
    noteBytes(static_cast<ptrdiff_t>(chunk_size));
  }
  void* memory = bump_;
  bump_ += rounded;
  bump_left_ -= rounded;
  ASAN_UNPOISON_MEMORY_REGION(memory, size);
  return ::new (memory) Entry;
}

void EntryArena::free(Entry* entry) {
  const size_t rounded = entry->roundedSize();
  if (rounded > kMaxPooled) {
    noteBytes(-static_cast<ptrdiff_t>(rounded));
    ::operator delete(entry);
    return;
  }
  FreeNode*& free_list = free_[rounded / kGranule];
  free_list = ::new (entry) FreeNode{free_list};
  ASAN_POISON_MEMORY_REGION(entry, rounded);
}

}  // namespace idetcd::records
