#include "resolver/round_trip.h"

namespace idetcd::resolver {

namespace {

constexpr RoundTrip::Time kHalfLife = std::chrono::seconds(30);
constexpr int kMaxDoublings = 6;  // from the minimum past the maximum

}  // namespace

void RoundTrip::sample(Time time, BootClock::time_point now) {
  time = std::max(time, Time(1));
  if (srtt_ == Time(0)) {
    srtt_ = time;
    rttvar_ = time / 2;
  } else {
    const Time difference = srtt_ > time ? srtt_ - time : time - srtt_;
    rttvar_ += (difference - rttvar_) / 4;
    srtt_ += (time - srtt_) / 8;
  }
  doublings_ = 0;
  changed_at_ = now;
}

void RoundTrip::backOff(BootClock::time_point now) {
  if (doublings_ > 0 && now - changed_at_ < timeout()) return;
  doublings_ = std::min(doublings_ + 1, kMaxDoublings);
  changed_at_ = now;
}

RoundTrip::Time RoundTrip::timeout() const {
  const Time first = srtt_ == Time(0) ? kInitialTimeout : std::clamp(srtt_ + 4 * rttvar_, kMinTimeout, kMaxTimeout);
  return std::min(first * (1 << doublings_), kMaxTimeout);
}

RoundTrip::Time RoundTrip::expected(BootClock::time_point now) const {
  const Time known = doublings_ > 0 ? timeout() : srtt_;
  const auto half_lives = (now - changed_at_) / kHalfLife;
  return half_lives >= 32 ? Time(0) : known / (int64_t{1} << std::max<int64_t>(half_lives, 0));
}

}  // namespace idetcd::resolver
