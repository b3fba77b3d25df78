#include "malloc_counter.h"

#include <cerrno>
#include <cstdlib>

namespace {
thread_local std::atomic<size_t>* counter = nullptr;

[[maybe_unused]] void count() {
  if (counter != nullptr) counter->fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

namespace idetcd::test {
void countAllocations(std::atomic<size_t>* to) { counter = to; }
}  // namespace idetcd::test

#ifndef IDETCD_SANITIZED
extern "C" {
void* __libc_malloc(size_t size);                      // NOLINT: glibc's names
void* __libc_calloc(size_t number, size_t size);       // NOLINT
void* __libc_realloc(void* memory, size_t size);       // NOLINT
void* __libc_memalign(size_t alignment, size_t size);  // NOLINT

void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* memory, size_t size) {
  count();
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {  // operator new for what is over-aligned
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  count();
  *memory = __libc_memalign(alignment, size);
  return *memory != nullptr ? 0 : ENOMEM;
}
}
#endif
