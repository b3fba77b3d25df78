// How long one server takes to answer: the estimator of RFC 6298 §2, with what DNS needs beside it. One thread.
//
// A sample is the time from a message to its answer. An answer to a message that was sent twice says nothing (Karn's
// rule, RFC 6298 §3), so the timeout that has doubled stays until an unambiguous one comes.
#pragma once

#include "base/clock.h"

namespace idetcd::resolver {

class RoundTrip {
 public:
  using Time = std::chrono::nanoseconds;

  static constexpr Time kInitialTimeout = std::chrono::milliseconds(400);  // of a server that has not answered yet
  static constexpr Time kMinTimeout = std::chrono::milliseconds(50);
  static constexpr Time kMaxTimeout = std::chrono::milliseconds(2000);

  void sample(Time time, BootClock::time_point now);
  // There was no answer within timeout(), which doubles; at most once in its own time, because the messages of one
  // burst are lost together (RFC 6298 §5.5 has one timer for all).
  void backOff(BootClock::time_point now);

  // After which a message counts as lost: SRTT + 4 * RTTVAR, within the bounds above.
  Time timeout() const;
  // SRTT. Zero: there was no sample.
  Time smoothed() const { return srtt_; }
  // What to expect of the next message. Zero: nothing is known. An old estimate fades, so that a server that was slow
  // once is measured again.
  Time expected(BootClock::time_point now) const;

 private:
  Time srtt_{0};
  Time rttvar_{0};
  int doublings_ = 0;
  BootClock::time_point changed_at_{};
};

}  // namespace idetcd::resolver
