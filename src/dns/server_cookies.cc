#include "dns/server_cookies.h"

#include <bit>

#include "base/random.h"

namespace idetcd::dns {

namespace {

constexpr uint8_t kVersion = 1;
constexpr size_t kTimestamp = 4;
constexpr size_t kHash = 8;
// RFC 9018 §4.3
constexpr int32_t kLifetimeSeconds = 3600;
constexpr int32_t kRenewalSeconds = 1800;
constexpr int32_t kMaxAheadSeconds = 300;
constexpr uint32_t kDaySeconds = 86400;

// As one comparison of numbers: the time that it takes does not tell how many bytes are right.
bool isSame(std::span<const uint8_t, 8> a, std::span<const uint8_t, 8> b) {
  return load64(a.data()) == load64(b.data());
}

}  // namespace

SipHashKey ServerCookies::randomSecret() {
  KernelRandom random;
  return std::bit_cast<SipHashKey>(std::array{random.next(), random.next()});
}

SipHashKey ServerCookies::secretAt(const SipHashKey& secret, uint32_t time_seconds) const {
  if (!daily_) return secret;
  std::array<uint8_t, 5> message{};
  store32(message.data(), time_seconds / kDaySeconds);
  SipHashKey daily;
  for (uint8_t half = 0; half < 2; ++half) {
    message[4] = half;
    std::ranges::copy(sipHash24(message, secret), daily.begin() + half * 8);
  }
  return daily;
}

std::array<uint8_t, 8> ServerCookies::hash(const Cookie& cookie, const IpAddress& client,
                                           const SipHashKey& secret) const {
  std::array<uint8_t, Cookie::kClientSize + kHash + 16> message;
  auto* end = std::ranges::copy(cookie.client, message.data()).out;
  end = std::copy_n(cookie.server.begin(), kHash, end);
  end = std::copy_n(client.data(), client.size(), end);
  return sipHash24({message.data(), end}, secretAt(secret, load32(&cookie.server[kTimestamp])));
}

bool ServerCookies::isMadeWith(const SipHashKey& secret, const Cookie& cookie, const IpAddress& client) const {
  return isSame(hash(cookie, client, secret), std::span(cookie.server).last<8>());
}

void ServerCookies::apply(Query& query, const IpAddress& client, uint32_t now_seconds) const {
  assert(query.asksFor(kAsksCookie));
  Cookie& cookie = query.cookie;
  cookie.in_response = true;
  if (cookie.judgement == Cookie::Judgement::kUnjudged) {
    // By serial number arithmetic (RFC 1982), which the subtraction is.
    const auto age = static_cast<int32_t>(now_seconds - load32(&cookie.server[kTimestamp]));
    const bool in_time = age <= kLifetimeSeconds && age >= -kMaxAheadSeconds && cookie.server[0] == kVersion;
    const auto by = std::ranges::find_if(
        secrets_, [&](const SipHashKey& secret) { return in_time && isMadeWith(secret, cookie, client); });
    const bool good = by != secrets_.end();
    cookie.judgement = good ? Cookie::Judgement::kGood : Cookie::Judgement::kBad;
    if (good && by == secrets_.begin() && age < kRenewalSeconds) return;
  }
  cookie.server = {kVersion};
  store32(&cookie.server[kTimestamp], now_seconds);
  std::ranges::copy(hash(cookie, client, secrets_.front()), &cookie.server[kHash]);
}

}  // namespace idetcd::dns
