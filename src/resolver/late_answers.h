// The pace at which the answers leave that many clients have waited for: a burst of queries for one name must not come
// back as a burst of answers, which would fill the network's and the clients' buffers, and keep the loop from others.
// Loop thread only.
//
// kBytesPerMillisecond in the long run, kBurst in a turn of the loop; a single answer counts kLeast at least.
#pragma once

#include "base/clock.h"
#include "net/event_loop.h"

namespace idetcd::resolver {

class LateAnswers {
 public:
  static constexpr std::ptrdiff_t kBytesPerMillisecond = 32 << 10;  // 262 Mbit/s
  static constexpr std::ptrdiff_t kBurst = kBytesPerMillisecond;
  static constexpr std::ptrdiff_t kLeast = 256;  // so that no more than 128 leave in a millisecond: some 0.2 ms of work
  static constexpr std::chrono::milliseconds kStep{1};

  LateAnswers(net::EventLoop& loop, std::function<void()> on_go) : timer_(loop, std::move(on_go)) {}

  // Once a turn of the loop, so that a turn has an end on a slow machine too.
  void begin() {
    const auto now = BootClock::now();
    const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(now - last_);
    const auto earned = std::min(passed, kLongest).count() * kBytesPerMillisecond / 1000;
    if (earned > 0) {
      credit_ = std::min(kBurst, credit_ + static_cast<std::ptrdiff_t>(earned));
      last_ = now;
    }
  }
  // Whether one more answer may leave in this turn.
  bool mayGo() const { return credit_ > 0; }
  // Returns what it counts for.
  size_t spend(size_t bytes) {
    const auto cost = std::max(static_cast<std::ptrdiff_t>(bytes), kLeast);
    credit_ -= cost;
    return static_cast<size_t>(cost);
  }
  // Calls back soon, once.
  void wait() { timer_.start(kStep); }

 private:
  static constexpr std::chrono::microseconds kLongest{1'000'000};

  std::ptrdiff_t credit_ = kBurst;
  BootClock::time_point last_ = BootClock::now();
  net::Timer timer_;
};

}  // namespace idetcd::resolver
