// Durations in buckets that are never wider than 1/64 of what they hold: percentiles without keeping every value. One
// thread; no allocation after construction.
#pragma once

#include <algorithm>
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
  void add(const Histogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
  }
  void clear() {
    counts_.assign(counts_.size(), 0);
    total_ = 0;
  }
  uint64_t total() const { return total_; }

  // The value of this rank, `quantile` in [0, 1], as if those of a bucket were spread evenly over it; 0 without any
  // value.
  double quantile(double quantile) const {
    const double rank = quantile * static_cast<double>(total_);
    uint64_t below = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] == 0) continue;
      const auto count = static_cast<double>(counts_[i]);
      const double inside = rank - static_cast<double>(below);
      below += counts_[i];
      if (inside < count || below == total_) return lowestOf(i) + widthOf(i) * std::min(inside / count, 1.0);
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
  static double widthOf(size_t bucket) {
    const size_t row = bucket >> kSubBits;
    return static_cast<double>(uint64_t{1} << (row == 0 ? 0 : row - 1));
  }
  static double lowestOf(size_t bucket) {
    if (bucket >> kSubBits == 0) return static_cast<double>(bucket);
    return static_cast<double>((bucket & ((1u << kSubBits) - 1)) + (1u << kSubBits)) * widthOf(bucket);
  }

  std::vector<uint64_t> counts_;
  uint64_t total_ = 0;
};

}  // namespace idetcd::bench
