#include "resolve/query_samples.h"

#include "dns/message_reader.h"
#include "resolve/router.h"

namespace idetcd::resolve {

namespace {

constexpr size_t kWordSize = sizeof(uint64_t);

// The numbers of a sample: weight, type, rcode and the size of the name.
uint64_t pack(const QuerySamples::Sample& sample) {
  return uint64_t{sample.weight} << 32 | uint64_t{sample.type} << 16 | uint64_t{sample.rcode & 0xffU} << 8 |
         sample.name.size();
}

// At the end of its batch.
bool isAnswered(const Job& job) {
  return job.outcome != dns::ParseOutcome::kDrop && dns::HeaderView(job.query.message).isResponse();
}

bool isFailure(dns::HeaderView response) { return response.rcode() == dns::Rcode::kServFail; }

size_t wordsOf(size_t name_size) { return 1 + (name_size + kWordSize - 1) / kWordSize; }

}  // namespace

void QuerySamples::begin(int64_t second) {
  const uint32_t before =
      slot_ != nullptr && current_ == second - 1 ? slot_->queries.load(std::memory_order_relaxed) : 0;
  stride_ = std::max<uint32_t>(before / kSamplesASecond, 1);
  skip_ = std::min(skip_, stride_ - 1);
  skip_late_ = std::min(skip_late_, stride_ - 1);
  taken_ = 0;
  current_ = second;
  slot_ = &seconds_[static_cast<size_t>(second % kSlots)];
  slot_->second.store(kNone, std::memory_order_relaxed);
  slot_->first_sample.store(end_, std::memory_order_release);
  slot_->end_sample.store(end_, std::memory_order_release);
  slot_->queries.store(0, std::memory_order_release);
  slot_->failures.store(0, std::memory_order_release);
  for (auto& bucket : slot_->durations) bucket.store(0, std::memory_order_release);
  slot_->second.store(second, std::memory_order_release);
}

uint32_t QuerySamples::countFailures(std::span<const Job> jobs) {
  return static_cast<uint32_t>(std::ranges::count_if(
      jobs, [](const Job& job) { return isAnswered(job) && isFailure(dns::HeaderView(job.query.message)); }));
}

void QuerySamples::sample(std::span<const Job> jobs) {
  size_t i = skip_;
  for (; i < jobs.size(); i += stride_) {
    if (isAnswered(jobs[i])) take(jobs[i].query);
  }
  skip_ = static_cast<uint32_t>(i - jobs.size());
}

void QuerySamples::onLateAnswer(const dns::Query& query, BootClock::time_point received, BootClock::time_point now) {
  Second& second = secondAt(now);
  add(second.durations[bucketOf(now - received)], 1);
  add(second.failures, isFailure(dns::HeaderView(query.message)) ? 1 : 0);
  if (skip_late_ > 0) {
    --skip_late_;
    return;
  }
  skip_late_ = stride_ - 1;
  take(query);
}

// A second that begins faster than the one before is sampled less and less.
void QuerySamples::take(const dns::Query& query) {
  write({.name = query.name(),
         .type = query.qtype,
         .rcode = static_cast<uint16_t>(internal::rcodeOf(query)),
         .weight = stride_});
  if (++taken_ > kSamplesASecond && taken_ % kBeforeFewer == 0) stride_ *= 2;
}

void QuerySamples::write(const Sample& sample) {
  const uint64_t begin = end_;
  end_ += wordsOf(sample.name.size());
  reserved_.store(end_, std::memory_order_relaxed);
  words_[begin % kWords].store(pack(sample), std::memory_order_release);
  for (size_t i = 0; i < sample.name.size(); i += kWordSize) {
    uint64_t word;  // there is slack behind a query's name
    std::memcpy(&word, sample.name.data() + i, kWordSize);
    words_[(begin + 1 + i / kWordSize) % kWords].store(word, std::memory_order_release);
  }
  slot_->end_sample.store(end_, std::memory_order_release);
}

void QuerySamples::read(int64_t second, Sums& sums) const {
  const Second& slot = seconds_[static_cast<size_t>(second % kSlots)];
  if (slot.second.load(std::memory_order_acquire) != second) return;
  const uint64_t queries = slot.queries.load(std::memory_order_acquire);
  const uint64_t failures = slot.failures.load(std::memory_order_acquire);
  std::array<uint64_t, kBuckets> durations;
  for (size_t i = 0; i < kBuckets; ++i) durations[i] = slot.durations[i].load(std::memory_order_acquire);
  if (slot.second.load(std::memory_order_relaxed) != second) return;
  sums.queries += queries;
  sums.failures += failures;
  for (size_t i = 0; i < kBuckets; ++i) sums.durations[i] += durations[i];
}

void QuerySamples::visit(int64_t first, int64_t last, const std::function<void(const Sample&)>& visit) const {
  std::vector<uint64_t> words;
  for (int64_t second = first; second <= last; ++second) {
    const auto [begin, end] = placeOf(second);
    if (begin == end || !copy(begin, end, words)) continue;
    for (size_t at = 0; at < words.size();) {
      const uint64_t numbers = words[at];
      const size_t name_size = numbers & 0xff;
      visit({.name = {reinterpret_cast<const uint8_t*>(words.data() + at + 1), name_size},
             .type = static_cast<uint16_t>(numbers >> 16),
             .rcode = static_cast<uint16_t>(numbers >> 8 & 0xff),
             .weight = static_cast<uint32_t>(numbers >> 32)});
      at += wordsOf(name_size);
    }
  }
}

// Where the samples of a second begin and end.
std::pair<uint64_t, uint64_t> QuerySamples::placeOf(int64_t second) const {
  const Second& slot = seconds_[static_cast<size_t>(second % kSlots)];
  if (slot.second.load(std::memory_order_acquire) != second) return {};
  const uint64_t begin = slot.first_sample.load(std::memory_order_acquire);
  const uint64_t end = slot.end_sample.load(std::memory_order_acquire);
  if (slot.second.load(std::memory_order_relaxed) != second) return {};
  return {begin, end};
}

// False: some of it may have been overwritten.
bool QuerySamples::copy(uint64_t begin, uint64_t end, std::vector<uint64_t>& words) const {
  if (end - begin > kWords) return false;
  words.resize(end - begin);
  for (uint64_t at = begin; at < end; ++at) words[at - begin] = words_[at % kWords].load(std::memory_order_acquire);
  return reserved_.load(std::memory_order_relaxed) <= begin + kWords;
}

std::shared_ptr<QuerySamples> LoopSamples::of(size_t worker) {
  const std::lock_guard lock(mutex_);
  while (loops_.size() <= worker) loops_.push_back(std::make_shared<QuerySamples>());
  return loops_[worker];
}

std::vector<std::shared_ptr<const QuerySamples>> LoopSamples::all() const {
  const std::lock_guard lock(mutex_);
  return {loops_.begin(), loops_.end()};
}

}  // namespace idetcd::resolve
