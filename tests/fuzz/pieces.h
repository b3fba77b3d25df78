// How a stream is cut: the front of an input says it, the rest of the input is the stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace idetcd::fuzz {

class Pieces {
 public:
  // A byte with the number of sizes, modulo 16, and so many bytes, each a size.
  explicit Pieces(std::span<const uint8_t> input) {
    if (input.empty()) return;
    const size_t count = std::min<size_t>(input[0] % 16, input.size() - 1);
    sizes_ = input.subspan(1, count);
    rest_ = input.subspan(1 + count);
  }

  std::span<const uint8_t> rest() const { return rest_; }
  // The size of the next piece of what is `left`, at least 1: the sizes one after the other, again and again; a size of
  // 0 and no sizes at all mean everything. REQUIRES: left > 0.
  size_t next(size_t left) {
    const size_t size = sizes_.empty() ? 0 : sizes_[next_++ % sizes_.size()];
    return size == 0 ? left : std::min(size, left);
  }

 private:
  std::span<const uint8_t> sizes_;
  std::span<const uint8_t> rest_;
  size_t next_ = 0;
};

}  // namespace idetcd::fuzz
