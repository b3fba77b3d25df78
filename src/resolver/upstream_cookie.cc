#include "resolver/upstream_cookie.h"

namespace idetcd::resolver {

namespace {

using dns::Cookie;

constexpr std::chrono::seconds kLookInterval{1};
constexpr std::chrono::hours kClientLifetime{24};
constexpr std::chrono::minutes kWithoutTime{15};

}  // namespace

std::span<const uint8_t> UpstreamCookie::option(BootClock::time_point now) const {
  if (!own_ || now < refused_until_) return {};
  return std::span(option_).first(size_);
}

void UpstreamCookie::draw(net::SecureRandom& random, BootClock::time_point now) {
  for (size_t i = 0; i < client_.size(); i += 2) dns::store16(&client_[i], random.next16());
  std::ranges::copy(client_, option_.begin());
  size_ = client_.size();
  drawn_at_ = now;
}

void UpstreamCookie::noteOwnAddress(const IpAddress& own, net::SecureRandom& random, BootClock::time_point now) {
  look_at_ = now + kLookInterval;
  if (own_ == own && now - drawn_at_ < kClientLifetime) return;
  own_ = own;
  draw(random, now);
}

UpstreamCookie::CookieVerdict UpstreamCookie::judge(const AnswerOptions& answer, const Client& sent,
                                              BootClock::time_point now) {
  if (!answer.cookie) return isGiven() && now >= stopped_until_ ? CookieVerdict::kMissing : CookieVerdict::kNone;
  const std::span<const uint8_t> data = *answer.cookie;
  const bool whole = data.size() >= 2 * Cookie::kClientSize && data.size() <= kMaxOptionSize;
  if (!whole || !std::equal(sent.begin(), sent.end(), data.begin())) return CookieVerdict::kWrong;
  tolerated_ = true;
  if (sent == client_) {
    std::ranges::copy(data, option_.begin());
    size_ = data.size();
  }
  return CookieVerdict::kGood;
}

void UpstreamCookie::noteStopped(BootClock::time_point now) {
  size_ = std::min(size_, client_.size());
  stopped_until_ = now + kWithoutTime;
}

void UpstreamCookie::noteRefused(BootClock::time_point now) { refused_until_ = now + kWithoutTime; }

}  // namespace idetcd::resolver
