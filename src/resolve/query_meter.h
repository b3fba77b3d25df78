// Counts the queries of one zone at one listening address on one loop, for `prometheus`. Written by that loop's thread,
// without lock, allocation or look-up of labels; read by any thread, not of one instant. UDP answers without the chain
// are counted at the end of their batch (53 instructions a query). It outlives the chains, so a reload sets nothing
// back. The clock is read once a batch: the duration of an immediate answer reaches from taking its batch to handing
// over all its responses; a late one ends with its own.
#pragma once

#include <sys/socket.h>

#include "base/clock.h"
#include "base/ip_address.h"
#include "config/server_key.h"
#include "dns/message_reader.h"
#include "dns/name.h"
#include "dns/query.h"
#include "dns/types.h"
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

  // The queries of one batch over UDP: the same as onQuery(), and onAnswerInBatch() if there is an answer. What is
  // summed up of the batch is known when add() has had it.
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

// Gives the meters of one block on one loop. `zone`: null for what no zone holds, or what cannot be read.
using QueryMeterSource =
    std::function<std::shared_ptr<QueryMeter>(const SocketAddress& listening, config::Scheme scheme, const dns::Name* zone)>;

// A listener's name in metrics, as CoreDNS has it: "dns://:53", "tls://192.0.2.1:853", "dns://[2001:db8::1]:53". Any thread.
std::string serverLabel(const SocketAddress& listening, config::Scheme scheme);

// The work of QueryMeter for each query is inline, so that it becomes part of the router's path.

namespace internal {

inline constexpr uint8_t kOther = QueryMeter::kTypes.size() - 1;

constexpr size_t indexOf(std::string_view type) {
  return static_cast<size_t>(std::ranges::find(QueryMeter::kTypes, type) - QueryMeter::kTypes.begin());
}

// By type; those above have no label of their own.
inline constexpr std::array<uint8_t, 256> kTypeIndex = [] {
  std::array<uint8_t, 256> index{};
  index.fill(kOther);
  constexpr std::pair<uint16_t, std::string_view> kNumbers[]{
      {1, "A"},       {2, "NS"},     {5, "CNAME"},  {6, "SOA"},    {12, "PTR"},   {15, "MX"},
      {16, "TXT"},    {28, "AAAA"},  {33, "SRV"},   {43, "DS"},    {46, "RRSIG"}, {47, "NSEC"},
      {48, "DNSKEY"}, {50, "NSEC3"}, {65, "HTTPS"}, {251, "IXFR"}, {252, "AXFR"}, {255, "ANY"}};
  for (const auto& [number, name] : kNumbers) index[number] = static_cast<uint8_t>(indexOf(name));
  return index;
}();

inline size_t familyOf(const Request& request) { return request.source->sa_family == AF_INET6 ? 1 : 0; }
inline size_t transportOf(const Request& request) { return static_cast<size_t>(request.transport); }

// The header has four bits of it (RFC 6891 §6.1.3). Of the longer ones this server sends two, whose four bits it sends
// for no other reason: NOERROR is not the answer to a query of another EDNS version, and YXRRSET answers an UPDATE.
inline size_t rcodeOf(const dns::Query& query) {
  const auto low = static_cast<size_t>(dns::HeaderView(query.message).rcode());
  if (low == (dns::code(dns::Rcode::kBadVers) & 15) && query.error == dns::Rcode::kBadVers) [[unlikely]]
    return dns::code(dns::Rcode::kBadVers);
  if (low == (dns::code(dns::Rcode::kBadCookie) & 15)) [[unlikely]]
    return dns::code(dns::Rcode::kBadCookie);
  return low;
}

inline size_t typeIndexOf(uint16_t qtype) { return qtype < kTypeIndex.size() ? kTypeIndex[qtype] : kOther; }

}  // namespace internal

inline void QueryMeter::onQuery(const dns::Query& query, const Request& request) {
  const size_t transport = internal::transportOf(request);
  requests[transport][internal::familyOf(request)][internal::typeIndexOf(query.qtype)].add();
  request_sizes[transport].observe(query.size);
  requests_with_do.add(query.dnssec_ok ? 1 : 0);
}

inline void QueryMeter::countInBatch(const dns::Query& query, size_t family, const QueryOutcome& outcome,
                                     BatchSums& sums) {
  constexpr auto kUdp = static_cast<size_t>(Transport::kUdp);
  requests[kUdp][family][internal::typeIndexOf(query.qtype)].add();
  request_sizes[kUdp].buckets_[SizeHistogram::bucketOf(query.size)].add();
  sums.request_bytes += query.size;
  sums.with_do += query.dnssec_ok ? 1 : 0;
  if (outcome.kind != QueryOutcome::Kind::kAnswer) return;
  responses[outcome.answered_by][static_cast<size_t>(dns::HeaderView(query.message).rcode())].add();
  response_sizes[kUdp].buckets_[SizeHistogram::bucketOf(outcome.size)].add();
  sums.response_bytes += outcome.size;
  ++sums.answered;
}

inline void QueryMeter::add(const BatchSums& sums) {
  constexpr auto kUdp = static_cast<size_t>(Transport::kUdp);
  request_sizes[kUdp].sum_.add(sums.request_bytes);
  response_sizes[kUdp].sum_.add(sums.response_bytes);
  requests_with_do.add(sums.with_do);
  untimed_ += sums.answered;
}

inline void QueryMeter::onAnswer(const dns::Query& query, const Request& request, size_t size, DirectiveId by) {
  responses[by][internal::rcodeOf(query)].add();
  response_sizes[internal::transportOf(request)].observe(size);
}

}  // namespace idetcd::resolve
