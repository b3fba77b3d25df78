// Samples the answers of one loop in each of the last ten minutes' seconds (BootClock): queries, failures, durations, and a
// sample of the queries, of every server block, for control/traffic. Every n-th query is sampled and stands for n; n
// follows the rate, for some kSamplesASecond. Unanswered queries are counted, not sampled. Written by that loop's
// thread at the end of a batch (some seven instructions a query); read by any thread without a lock: what is
// overwritten meanwhile is left out. It outlives the routers, so a reload sets nothing back.
#pragma once

#include <bit>

#include "base/clock.h"
#include "dns/query.h"
#include "dns/types.h"
#include "resolve/directive.h"

namespace idetcd::resolve {

struct Job;

// The outcome of a batch, as far as it is known at its end.
struct BatchCounts {
  uint32_t queries = 0;
  uint32_t answered = 0;  // at once
  uint8_t rcodes = 0;     // of these, all of their bits: so that only a batch that may have failures is looked through

  void addAnswer(const uint8_t* response) {
    ++answered;
    rcodes |= response[3];  // the rcode and, above it, flags
  }
};

class QuerySamples {
 public:
  static constexpr int64_t kSeconds = 600;  // that can be read, and the one that goes on
  static constexpr uint32_t kSamplesASecond = 256;
  // Durations: four buckets a power of two of nanoseconds, from 1 us to 34 s; those beyond are in the first and the last.
  static constexpr size_t kBuckets = 101;
  static constexpr size_t bucketOf(std::chrono::nanoseconds duration);
  // Where a bucket begins, in nanoseconds; kBuckets: where the last one ends.
  static constexpr uint64_t lowerBound(size_t bucket) {
    return bucket == 0 ? 0 : (4 + (bucket - 1) % 4) << (kFirstShift + (bucket - 1) / 4);
  }
  static int64_t secondOf(BootClock::time_point time) {
    return std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
  }

  // Sums over seconds, and loops.
  struct Sums {
    uint64_t queries = 0;
    uint64_t failures = 0;
    std::array<uint64_t, kBuckets> durations{};
  };
  struct Sample {
    std::span<const uint8_t> name;  // in lower case; empty: it could not be read
    uint16_t type;
    uint16_t rcode;
    uint32_t weight;  // for how many queries it stands
  };

  QuerySamples() : words_(kWords) {}

  // --- the loop's thread ---

  // A batch was answered, all at once, `duration` after it was taken. The buffers of `jobs` still hold the responses.
  void onBatchDone(std::span<const Job> jobs, const BatchCounts& counts, std::chrono::nanoseconds duration,
                   BootClock::time_point now) {
    Second& second = secondAt(now);
    add(second.queries, counts.queries);
    if ((counts.rcodes & dns::code(dns::Rcode::kServFail)) != 0) [[unlikely]]
      add(second.failures, countFailures(jobs));
    add(second.durations[bucketOf(duration)], counts.answered);
    if (skip_ < jobs.size()) [[unlikely]]
      return sample(jobs);
    skip_ -= static_cast<uint32_t>(jobs.size());
  }
  // So many were answered elsewhere, faster than this loop could have.
  void onAnsweredElsewhere(uint32_t queries, BootClock::time_point now) {
    Second& second = secondAt(now);
    add(second.queries, queries);
    add(second.durations[0], queries);
  }
  // The response to a query of an earlier batch stands in its buffer.
  void onLateAnswer(const dns::Query& query, BootClock::time_point received, BootClock::time_point now);

  // --- any thread ---

  // Adds the numbers of one second.
  void read(int64_t second, Sums& sums) const;
  // Calls `visit` for what was sampled in the seconds [first, last], as far as there was room to keep it.
  void visit(int64_t first, int64_t last, const std::function<void(const Sample&)>& visit) const;

 private:
  static constexpr uint32_t kBeforeFewer = 64;  // samples
  static constexpr size_t kFirstShift = 8;
  static constexpr size_t kFirstWidth = 11;  // bits of the shortest duration with a bucket of its own
  static constexpr int64_t kSlots = kSeconds + 4;
  static constexpr uint64_t kWords = uint64_t{1} << 15;  // of eight bytes: at least 950 samples, often 8000
  static constexpr int64_t kNone = -1;

  struct Second {
    std::atomic<int64_t> second{kNone};     // kNone: it is being written anew
    std::atomic<uint64_t> first_sample{0};  // where its samples are
    std::atomic<uint64_t> end_sample{0};
    std::atomic<uint32_t> queries{0};
    std::atomic<uint32_t> failures{0};
    std::array<std::atomic<uint32_t>, kBuckets> durations{};
  };

  // Release and acquire show a reader that the writer has begun to overwrite what it reads.
  static void add(std::atomic<uint32_t>& number, uint32_t n) {
    number.store(number.load(std::memory_order_relaxed) + n, std::memory_order_release);
  }
  Second& secondAt(BootClock::time_point now) {
    const int64_t second = secondOf(now);
    if (second != current_) [[unlikely]]
      begin(second);
    return *slot_;
  }
  void begin(int64_t second);
  static uint32_t countFailures(std::span<const Job> jobs);
  void sample(std::span<const Job> jobs);
  void take(const dns::Query& query);
  void write(const Sample& sample);  // REQUIRES: the name of a Query
  std::pair<uint64_t, uint64_t> placeOf(int64_t second) const;
  bool copy(uint64_t begin, uint64_t end, std::vector<uint64_t>& words) const;

  std::array<Second, kSlots> seconds_;
  // Samples one behind the other: a word of numbers, then the name. Positions only grow.
  std::vector<std::atomic<uint64_t>> words_;
  std::atomic<uint64_t> reserved_{0};  // kWords before it begins what may be overwritten

  // The loop's own.
  uint64_t end_ = 0;  // of the samples
  int64_t current_ = kNone;
  Second* slot_ = nullptr;
  uint32_t stride_ = 1;     // of so many queries one is sampled
  uint32_t skip_ = 0;       // so many queries are passed over before the next one
  uint32_t skip_late_ = 0;  // of those that are answered later
  uint32_t taken_ = 0;      // in this second
};

constexpr size_t QuerySamples::bucketOf(std::chrono::nanoseconds duration) {
  const auto nanoseconds = static_cast<uint64_t>(duration.count() > 0 ? duration.count() : 0);
  const auto width = static_cast<size_t>(std::bit_width(nanoseconds));
  if (width < kFirstWidth) return 0;
  const size_t bucket = 1 + (width - kFirstWidth) * 4 + (nanoseconds >> (width - 3) & 3);
  return bucket < kBuckets ? bucket : kBuckets - 1;
}

// The samples of all loops, also of those that a reload has ended.
class LoopSamples final : public ProcessState {
 public:
  explicit LoopSamples(Process&) {}

  // Of the loop of that worker, made when it is first asked for. Any thread.
  std::shared_ptr<QuerySamples> of(size_t worker);
  std::vector<std::shared_ptr<const QuerySamples>> all() const;

 private:
  mutable std::mutex mutex_;  // guards the list
  std::vector<std::shared_ptr<QuerySamples>> loops_;
};

}  // namespace idetcd::resolve
