// Queries, and buffers like those of the datapath in which they are answered in place.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "dns/query.h"
#include "load/query_source.h"

namespace idetcd::bench {

class PreparedQueries {
 public:
  static constexpr size_t kCount = size_t{1} << 16;
  static constexpr size_t kBuffers = 64;  // a batch

  explicit PreparedQueries(const QuerySource::Options& options) : queries_(kCount), sizes_(kCount), buffers_(kBuffers) {
    QuerySource source(options);
    Expectation expectation;
    for (size_t i = 0; i < kCount; ++i) sizes_[i] = source.next(queries_[i].data(), expectation);
  }

  uint8_t* query(size_t i) { return queries_[i].data(); }
  size_t size(size_t i) const { return sizes_[i]; }
  // As the kernel does when the query comes in. REQUIRES: no more than kBuffers of them are in use.
  uint8_t* receive(size_t i) {
    uint8_t* buffer = buffers_[i % kBuffers].data();
    std::memcpy(buffer, queries_[i].data(), QuerySource::kMaxQuerySize);
    return buffer;
  }

 private:
  std::vector<std::array<uint8_t, QuerySource::kMaxQuerySize>> queries_;
  std::vector<size_t> sizes_;
  std::vector<std::array<uint8_t, 1232 + 64>> buffers_;
};

}  // namespace idetcd::bench
