// How a pattern writes an ID: in base 8, 10 or 16, lower case, with zeros in front up to a width. Within one format no
// two IDs are written alike, and a greater ID is never shorter. Pure; any thread.
#pragma once

#include "base/std.h"

namespace idetcd::slots {

struct NumberFormat {
  static constexpr int kMaxWidth = 63;  // no label is longer (RFC 1035 §2.3.4)

  int base = 10;  // 8, 10 or 16
  int width = 1;  // digits at least, from 1 to kMaxWidth

  class Digits {
   public:
    std::string_view view() const { return {text_.data(), size_}; }

   private:
    friend struct NumberFormat;
    std::array<char, kMaxWidth> text_;
    size_t size_ = 0;
  };

  // REQUIRES: id > 0, here and below.
  Digits write(int64_t id) const;
  // Digits that write() makes.
  size_t length(int64_t id) const;
  // The ID that `digits` stand for; none if they are no number above 0. They need not be what write() makes of it.
  std::optional<int64_t> read(std::string_view digits) const;

  bool operator==(const NumberFormat&) const = default;
};

}  // namespace idetcd::slots
