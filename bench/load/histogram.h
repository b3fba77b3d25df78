// Durations in buckets that are never wider than 1/64 of what they hold: percentiles without keeping every value. One
// thread; no allocation after construction.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace idetcd::bench {

class Histogram {
 public:
  Histogram() : counts_((kMaxExponent + 2) << kSubBits) {}

  void add(uint64_t nanoseconds) {
    ++counts_[bucketOf(nanoseconds)];
    ++total_;
  }
  void clear() {
    counts_.assign(counts_.size(), 0);
    total_ = 0;
  }
  uint64_t total() const { return total_; }

  // The middle of the bucket that holds the value of this rank, `quantile` in [0, 1]; 0 without any value.
  double quantile(double quantile) const {
    const auto rank = static_cast<uint64_t>(quantile * static_cast<double>(total_));
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > rank || (seen == total_ && seen > 0)) return middleOf(i);
    }
    return 0;
  }

 private:
  static constexpr unsigned kSubBits = 6;
  static constexpr unsigned kMaxExponent = 36;  // of 64 ns: 73 minutes

  // Below 64 ns a bucket each; above, 64 buckets for each power of two.
  static size_t bucketOf(uint64_t value) {
    if (value < (1u << kSubBits)) return value;
    unsigned exponent = static_cast<unsigned>(std::bit_width(value)) - kSubBits - 1;
    if (exponent > kMaxExponent - 1) return (size_t{kMaxExponent + 1} << kSubBits) - 1;
    return (size_t{exponent + 1} << kSubBits) + ((value >> exponent) - (1u << kSubBits));
  }
  static double middleOf(size_t bucket) {
    const size_t row = bucket >> kSubBits;
    if (row == 0) return static_cast<double>(bucket);
    const double width = static_cast<double>(uint64_t{1} << (row - 1));
    return (static_cast<double>(bucket & ((1u << kSubBits) - 1)) + (1u << kSubBits) + 0.5) * width;
  }

  std::vector<uint64_t> counts_;
  uint64_t total_ = 0;
};

}  // namespace idetcd::bench
