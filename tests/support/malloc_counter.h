// Counts all allocations of a thread: the program's malloc, and so every operator new. For programs
// that link malloc_counter.cc; the sanitizers have a malloc of their own, and with them nothing is counted.
#pragma once

#include <atomic>
#include <cstddef>

namespace idetcd::test {

// Where the allocations of the calling thread are counted from now on; null: not at all.
void countAllocations(std::atomic<size_t>* counter);

}  // namespace idetcd::test
