// Recycles the memory of objects of one size that come and go by the thousand, up to a bound; malloc keeps a handful of
// them, and searches and joins for the rest. One thread.
#pragma once

#include <new>

#include "base/std.h"

namespace idetcd {

// Must outlive what is allocated from it.
class BlockPool {
 public:
  explicit BlockPool(size_t max_kept = 1024) : max_kept_(max_kept) {}
  ~BlockPool() {
    for (void* block : kept_) ::operator delete(block);
  }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Blocks of another size than the first one's are not kept.
  void* take(size_t size) {
    if (size_ == 0) size_ = size;
    if (size != size_ || kept_.empty()) return ::operator new(size);
    void* block = kept_.back();
    kept_.pop_back();
    return block;
  }
  void give(void* block, size_t size) {
    if (size != size_ || kept_.size() == max_kept_) return ::operator delete(block);
    kept_.push_back(block);
  }
  size_t kept() const { return kept_.size(); }

 private:
  const size_t max_kept_;
  size_t size_ = 0;
  std::vector<void*> kept_;
};

// For std::allocate_shared(): object and reference counts in one block of the pool.
template <typename T>
class PoolAllocator {
 public:
  using value_type = T;
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

  explicit PoolAllocator(BlockPool& pool) : pool_(&pool) {}
  template <typename Other>
  PoolAllocator(const PoolAllocator<Other>& other) : pool_(other.pool_) {}  // NOLINT: as allocators are converted

  T* allocate(size_t count) { return static_cast<T*>(pool_->take(count * sizeof(T))); }
  void deallocate(T* block, size_t count) { pool_->give(block, count * sizeof(T)); }
  friend bool operator==(const PoolAllocator& a, const PoolAllocator& b) { return a.pool_ == b.pool_; }

 private:
  template <typename Other>
  friend class PoolAllocator;
  BlockPool* pool_;
};

}  // namespace idetcd
