// How many datagrams may be sent a second time, or how many questions over TCP as well: less than a tenth of the
// questions, whatever is lost. A server that is gone is not sent twice what it was sent before, and loss that comes
// from too much traffic does not make more of it. A token bucket that is filled by questions. One thread.
#pragma once

#include "base/std.h"

namespace idetcd::resolver {

class ExtraDatagrams {
 public:
  // For each question.
  void earn() { tokens_ = std::min(tokens_ + kEarned, kMax); }
  // False: not now.
  bool take() {
    if (tokens_ < kPrice) return false;
    tokens_ -= kPrice;
    return true;
  }

 private:
  // With what it starts with, no more than a tenth once there were 500 questions.
  static constexpr int32_t kPrice = 100;
  static constexpr int32_t kEarned = 9;
  static constexpr int32_t kInitial = 5 * kPrice;
  static constexpr int32_t kMax = 100 * kPrice;
  int32_t tokens_ = kInitial;
};

}  // namespace idetcd::resolver
