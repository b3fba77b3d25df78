// Counts the queries of one zone at one listening address on one loop, for `prometheus`. Written by that loop's thread,
// without lock, allocation or look-up of labels; read by any thread, not of one instant. UDP answers without the chain
// are counted at the end of their batch (53 instructions a query). It outlives the chains, so a reload sets nothing
// back. The clock is read once a batch: the duration of an immediate answer reaches from taking its batch to handing
// over all its responses; a late one ends with its own.
#pragma once

#include "base/clock.h"
#include "base/ip_address.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolve/directive_names.h"
#include "resolve/request.h"

namespace idetcd::resolve {

// One number, written by one thread.
class MeterCount {
 public:
  // Of a load, an addition and a store the compiler makes three instructions and computes the address apart, where this
  // processor has one for all, that other threads see as one: a third of what it costs to count a query.
  void add(uint64_t n = 1) {
#if defined(__x86_64__)
    static_assert(sizeof(value_) == sizeof(uint64_t) && std::atomic<uint64_t>::is_always_lock_free);
    asm("addq %1, %0" : "+m"(value_) : "er"(n) : "cc");  // NOLINT(hicpp-no-assembler)
#else
    value_.store(value() + n, std::memory_order_relaxed);
#endif
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Sizes of messages in the buckets of CoreDNS.
class SizeHistogram {
 public:
  static constexpr std::array<uint32_t, 14> kBounds{0,    100,  200,  300,   400,   511,   1023,
                                                    2047, 4095, 8291, 16000, 32000, 48000, 64000};

  void observe(size_t bytes) {
    buckets_[bucketOf(bytes)].add();
    sum_.add(bytes);
  }
  // The first bucket whose bound is not below; behind the last bound, the one that has none.
  static constexpr size_t bucketOf(size_t bytes) {
    if (bytes < kSmall) [[likely]]
      return kBucketOfSmall[bytes];
    return find(bytes);
  }

  std::array<MeterCount, kBounds.size() + 1> buckets_;  // not cumulative
  MeterCount sum_;                                      // bytes

 private:
  static constexpr size_t kSmall = 512;  // no longer than an answer to a query without EDNS
  static constexpr size_t find(size_t bytes) {
    size_t i = 0;
    while (i < kBounds.size() && bytes > kBounds[i]) ++i;
    return i;
  }
  static const std::array<uint8_t, kSmall> kBucketOfSmall;
};

inline constexpr std::array<uint8_t, SizeHistogram::kSmall> SizeHistogram::kBucketOfSmall = [] {
  std::array<uint8_t, kSmall> buckets{};
  for (size_t bytes = 0; bytes < kSmall; ++bytes) buckets[bytes] = static_cast<uint8_t>(find(bytes));
  return buckets;
}();

// Durations in the buckets of CoreDNS, 250 µs · 2ⁿ up to 8.192 s, and in finer ones below the first of them.
class DurationHistogram {
 public:
  static constexpr size_t kFine = 8;  // bounds below the first one of CoreDNS
  static constexpr size_t kCoarse = 16;
  static constexpr std::array<uint64_t, kFine + kCoarse> kBounds = [] {
    std::array<uint64_t, kFine + kCoarse> nanoseconds{1000, 2000, 4000, 8000, 16000, 32000, 64000, 125000};
    for (size_t i = 0; i < kCoarse; ++i) nanoseconds[kFine + i] = uint64_t{250000} << i;
    return nanoseconds;
  }();

  void observe(std::chrono::nanoseconds duration, uint64_t times = 1);

  std::array<MeterCount, kBounds.size() + 1> buckets_;  // not cumulative
  MeterCount sum_;                                      // nanoseconds
};

class alignas(64) QueryMeter {
 public:
  // The types that have a label of their own, as in CoreDNS; then all others.
  static constexpr std::array<std::string_view, 19> kTypes{"A",     "AAAA", "MX",   "SOA",    "CNAME", "PTR",  "TXT",
                                                           "NS",    "SRV",  "DS",   "DNSKEY", "RRSIG", "NSEC", "NSEC3",
                                                           "HTTPS", "IXFR", "AXFR", "ANY",    "other"};
  static constexpr size_t kTransports = 2;  // by Transport
  static constexpr size_t kFamilies = 2;    // IPv4, IPv6
  static constexpr size_t kRcodes = 32;     // up to BADCOOKIE, 23, and a power of two
  static constexpr size_t kVerdicts = 4;    // by Gate::AclVerdict

  // Before its answer can leave.
  void onQuery(const dns::Query& query, const Request& request);
  // A response of `size` bytes stands in the query's buffer and will be sent. `by`: whose it is.
  void onAnswer(const dns::Query& query, const Request& request, size_t size, DirectiveId by);
  // The same, in a batch whose end tells how long it took: onBatchDone().
  void onAnswerInBatch(const dns::Query& query, const Request& request, size_t size, DirectiveId by) {
    onAnswer(query, request, size, by);
    ++untimed_;
  }
  void onLateAnswer(const dns::Query& query, const Request& request, size_t size, DirectiveId by);

  // What came over UDP in one batch: the same as onQuery(), and onAnswerInBatch() if there is an answer. What is summed
  // up of the batch is known when add() has had it.
  struct BatchSums {
    uint64_t request_bytes = 0;
    uint64_t response_bytes = 0;
    uint64_t with_do = 0;
    uint64_t answered = 0;
  };
  // `family`: index of the address family. REQUIRES: the rcode of the response has four bits.
  void countInBatch(const dns::Query& query, size_t family, const QueryOutcome& outcome, BatchSums& sums);
  void add(const BatchSums& sums);

  bool hasUntimed() const { return untimed_ > 0; }
  void onBatchDone(std::chrono::nanoseconds duration) {
    durations.observe(duration, untimed_);
    untimed_ = 0;
  }

  // Index in kTypes.
  static size_t typeIndex(uint16_t qtype);

  // As counted so far.
  std::array<std::array<std::array<MeterCount, kTypes.size()>, kFamilies>, kTransports> requests;
  MeterCount requests_with_do;
  std::array<std::array<MeterCount, kRcodes>, DirectiveNames::kMax> responses;
  std::array<SizeHistogram, kTransports> request_sizes;
  std::array<SizeHistogram, kTransports> response_sizes;
  DurationHistogram durations;
  std::array<MeterCount, kVerdicts> verdicts;

 private:
  uint64_t untimed_ = 0;  // answered in this batch
};

// Where the meters of one block on one loop come from.
class QueryMeterSource {
 public:
  virtual ~QueryMeterSource() = default;
  // `zone`: null for what no zone holds, or what cannot be read.
  virtual std::shared_ptr<QueryMeter> meterOf(const SocketAddress& listening, const dns::Name* zone) = 0;
};

}  // namespace idetcd::resolve
