#include "directive/xdp/kernel_counts.h"

#include <numeric>

#include "dns/types.h"

namespace idetcd::directive {

namespace {

using resolve::QueryMeter;

constexpr size_t kUdp = static_cast<size_t>(resolve::Transport::kUdp);
constexpr std::array<dns::Rcode, kernel::kRcodes> kRcodes{dns::Rcode::kNoError, dns::Rcode::kNxDomain};

static_assert(QueryMeter::kTypes.size() == kernel::kTypes && QueryMeter::kTypes[kernel::kTypeA] == "A" &&
              QueryMeter::kTypes[kernel::kTypePtr] == "PTR" && QueryMeter::kTypes[kernel::kTypeHttps] == "HTTPS" &&
              QueryMeter::kTypes[kernel::kTypeOther] == "other");

template <size_t size>
using Numbers = __u64[size];

// The program's buckets are those of SizeHistogram, from its second one on.
void addSizes(const Numbers<kernel::kSizeBuckets>& now, const Numbers<kernel::kSizeBuckets>& seen, uint64_t bytes,
              resolve::SizeHistogram& histogram) {
  static_assert(resolve::SizeHistogram::kBounds[1] == 100 && resolve::SizeHistogram::kBounds[4] == 400);
  for (size_t i = 0; i < kernel::kSizeBuckets; ++i) histogram.buckets_[i + 1].add(now[i] - seen[i]);
  histogram.sum_.add(bytes);
}

}  // namespace

KernelCounts::KernelCounts(std::shared_ptr<const kernel::Maps> maps, metrics::Scope scope,
                           std::shared_ptr<resolve::QuerySamples> samples)
    : Group(std::move(scope)),
      maps_(std::move(maps)),
      samples_(std::move(samples)),
      passed_(*this, "idetcd_xdp_passed_total", "reason", kReasons,
              "Queries that the program in the kernel has left to the sockets, and why."),
      seen_passed_(maps_->passed()) {}

std::optional<uint16_t> KernelCounts::meterFor(const Subject& of, std::shared_ptr<QueryMeter> meter,
                                               resolve::DirectiveId by) {
  auto source = std::ranges::find(sources_, std::optional(of), &Source::of);
  if (source == sources_.end()) source = std::ranges::find(sources_, std::optional<Subject>(), &Source::of);
  if (source == sources_.end()) return std::nullopt;
  const auto index = static_cast<uint16_t>(source - sources_.begin());
  if (!source->of) source->seen = maps_->meter(index);
  source->of = of;
  source->meter = std::move(meter);
  source->by = by;
  return index;
}

void KernelCounts::keepOnly(const std::set<Subject>& subjects) {
  update(BootClock::now());
  for (Source& source : sources_) {
    if (source.of && !subjects.contains(*source.of)) source = {};
  }
}

void KernelCounts::update(BootClock::time_point now) {
  uint64_t answers = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].of) answers += add(sources_[i], maps_->meter(i));
  }
  if (answers > 0 && samples_) samples_->onAnsweredElsewhere(static_cast<uint32_t>(answers), now);
  const auto passed = maps_->passed();
  for (size_t reason = 0; reason < passed.size(); ++reason) {
    passed_.add(static_cast<kernel::PassReason>(reason), passed[reason] - seen_passed_[reason]);
  }
  seen_passed_ = passed;
}

// Returns how many answers there were.
uint64_t KernelCounts::add(Source& source, const kernel::Meter& now) {
  QueryMeter* const meter = source.meter.get();
  const kernel::Meter& seen = source.seen;
  uint64_t all = 0;
  for (size_t family = 0; family < kernel::kFamilies; ++family) {
    for (size_t type = 0; type < kernel::kTypes; ++type) {
      for (size_t rcode = 0; rcode < kernel::kRcodes; ++rcode) {
        const uint64_t answers = now.answered[family][type][rcode] - seen.answered[family][type][rcode];
        if (answers == 0) continue;
        all += answers;
        answered(type, rcode).add(answers);
        if (meter == nullptr) continue;
        meter->requests[kUdp][family][type].add(answers);
        meter->responses[source.by][static_cast<size_t>(kRcodes[rcode])].add(answers);
      }
    }
  }
  if (meter != nullptr && all > 0) {
    meter->requests_with_do.add(now.with_do - seen.with_do);
    addSizes(now.request_sizes, seen.request_sizes, now.request_bytes - seen.request_bytes, meter->request_sizes[kUdp]);
    addSizes(now.response_sizes, seen.response_sizes, now.response_bytes - seen.response_bytes,
             meter->response_sizes[kUdp]);
    meter->durations.observe(kDuration, all);
  }
  source.seen = now;
  return all;
}

metrics::Counter& KernelCounts::answered(size_t type, size_t rcode) {
  auto& counter = answered_[{type, rcode}];
  if (!counter) {
    counter = std::make_unique<Answered>(
        scope().with("type", std::string(QueryMeter::kTypes[type])).with("rcode", kRcodeNames[rcode]));
  }
  return *counter;
}

}  // namespace idetcd::directive
