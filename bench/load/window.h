// The queries under way on one socket or connection: as many as it has slots, each of which keeps its packet until it
// is answered. A query's slot is in its ID, with a generation, so that an answer that comes too late is not taken for
// another one's. One thread; no allocation after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "load/histogram.h"
#include "load/query_source.h"

namespace idetcd::bench {

inline constexpr uint64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kLostAfter = kSecond / 4;

// CLOCK_MONOTONIC, in nanoseconds.
uint64_t now();

struct Statistics {
  uint64_t answered = 0;
  uint64_t wrong = 0;
  uint64_t lost = 0;
  uint64_t late = 0;  // of a query given up, or of none
  Histogram latency;

  void clear() {
    answered = wrong = lost = late = 0;
    latency.clear();
  }
};

class Window {
 public:
  // `echo`: the answers are the queries. `source` and `statistics` outlive the window. REQUIRES: 1 <= size <= 4096.
  Window(size_t size, bool echo, QuerySource& source, Statistics& statistics);

  size_t free() const { return free_.size(); }
  size_t outstanding() const { return slots_.size() - free_.size(); }

  // A new query for the free slot that is `ahead` others away; valid until its answer is taken. It is not under way
  // before sent() says so. REQUIRES: ahead < free().
  std::span<uint8_t> prepare(size_t ahead);
  // The first `count` prepared queries are under way since `time`.
  void sent(size_t count, uint64_t time);

  // Judges what has come.
  void take(std::span<const uint8_t> answer, uint64_t time);
  // Gives up what has been under way for kLostAfter, or everything.
  void expire(uint64_t time);
  void giveUpAll();

 private:
  struct Slot {
    std::array<uint8_t, QuerySource::kMaxQuerySize> packet;
    uint16_t size = 0;
    uint16_t id = 0;
    bool outstanding = false;
    Expectation expectation;
    uint64_t sent_at = 0;
  };

  void release(size_t index);

  const bool echo_;
  QuerySource& source_;
  Statistics& statistics_;
  const unsigned slot_bits_;
  std::vector<Slot> slots_;
  std::vector<uint16_t> free_;
};

}  // namespace idetcd::bench
