// The server's cookies, with the vectors of RFC 9018 appendix A.
#include "dns/server_cookies.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace idetcd::dns {
namespace {

using Judgement = Cookie::Judgement;
using Bytes = std::vector<uint8_t>;

Bytes hex(std::string_view text) {
  Bytes bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}
SipHashKey secret(std::string_view text) {
  SipHashKey key;
  std::ranges::copy(hex(text), key.begin());
  return key;
}

const SipHashKey kSecret = secret("e5e973e5a6b2a43f48e7dc849e37bfcf");
const IpAddress kClient = *IpAddress::parse("198.51.100.100");
constexpr uint32_t kNow = 0x5cf79f11;

// The option's data, as a client sends it; returns it as the response carries it.
struct Applied {
  Judgement judgement = Judgement::kNew;
  Bytes data;
};
Applied apply(const ServerCookies& cookies, const Bytes& data, const IpAddress& client, uint32_t now) {
  Query query;
  query.asked_options = kAsksCookie;
  query.cookie.judgement = data.size() == 24 ? Judgement::kUnjudged : Judgement::kNew;
  std::copy_n(data.begin(), 8, query.cookie.client.begin());
  if (data.size() == 24) std::copy_n(data.begin() + 8, 16, query.cookie.server.begin());
  query.cookie.in_response = false;
  cookies.apply(query, client, now);
  EXPECT_TRUE(query.cookie.in_response);
  Bytes answer(query.cookie.client.begin(), query.cookie.client.end());
  answer.insert(answer.end(), query.cookie.server.begin(), query.cookie.server.end());
  return {query.cookie.judgement, answer};
}

TEST(ServerCookies, ANewCookie) {  // A.1
  const ServerCookies cookies({kSecret});
  const Applied applied = apply(cookies, hex("2464c4abcf10c957"), kClient, kNow);
  EXPECT_EQ(applied.judgement, Judgement::kNew);
  EXPECT_EQ(applied.data, hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480"));
}

TEST(ServerCookies, AnOldCookieIsRenewed) {  // A.2
  const ServerCookies cookies({kSecret});
  const Applied applied = apply(cookies, hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480"), kClient, 0x5cf7a871);
  EXPECT_EQ(applied.judgement, Judgement::kGood);
  EXPECT_EQ(applied.data, hex("2464c4abcf10c957010000005cf7a871d4a564a1442aca77"));
}

TEST(ServerCookies, ReservedBitsAreHashedAsTheyAre) {  // A.3
  const ServerCookies cookies({kSecret});
  const Applied applied = apply(cookies, hex("fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5"),
                                *IpAddress::parse("203.0.113.203"), 0x5cf7a9ac - 6000);
  EXPECT_EQ(applied.judgement, Judgement::kGood);
  EXPECT_EQ(apply(cookies, hex("fc93fc62807ddb86"), *IpAddress::parse("203.0.113.203"), 0x5cf7a9ac).data,
            hex("fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e"));
}

TEST(ServerCookies, ASecretIsReplaced) {  // A.4
  const SipHashKey old_secret = secret("dd3bdf9344b678b185a6f5cb60fca715");
  const SipHashKey new_secret = secret("445536bcd2513298075a5d379663c962");
  const IpAddress client = *IpAddress::parse("2001:db8:220:1:59de:d0f4:8769:82b8");
  const Bytes sent = hex("22681ab97d52c298010000005cf7c57926556bd0934c72f8");
  const Bytes renewed = hex("22681ab97d52c298010000005cf7c609a6bb79d16625507a");
  const Applied applied = apply(ServerCookies({new_secret, old_secret}), sent, client, 0x5cf7c609);
  EXPECT_EQ(applied.judgement, Judgement::kGood);
  EXPECT_EQ(applied.data, renewed) << "made with the first secret, though it is young";
  const Applied before = apply(ServerCookies({old_secret, new_secret}), sent, client, 0x5cf7c609);
  EXPECT_EQ(before.data, sent);
  EXPECT_EQ(apply(ServerCookies({new_secret}), sent, client, 0x5cf7c609).judgement, Judgement::kBad);
}

// RFC 9018 §4.3: an hour old, five minutes ahead; for half an hour the same one.
TEST(ServerCookies, AgeDecides) {
  const ServerCookies cookies({kSecret});
  for (const uint32_t made : {kNow, uint32_t{100}, ~uint32_t{0} - 100}) {  // where the number wraps, too
    const Bytes cookie = apply(cookies, hex("2464c4abcf10c957"), kClient, made).data;
    const auto at = [&](int seconds) { return apply(cookies, cookie, kClient, made + static_cast<uint32_t>(seconds)); };
    for (const int seconds : {-300, 0, 1799}) {
      EXPECT_EQ(at(seconds).judgement, Judgement::kGood) << seconds;
      EXPECT_EQ(at(seconds).data, cookie) << seconds;
    }
    for (const int seconds : {1800, 3600}) {
      EXPECT_EQ(at(seconds).judgement, Judgement::kGood) << seconds;
      EXPECT_NE(at(seconds).data, cookie) << seconds;
    }
    for (const int seconds : {-301, 3601, 1 << 30}) {
      EXPECT_EQ(at(seconds).judgement, Judgement::kBad) << seconds;
      EXPECT_NE(at(seconds).data, cookie) << seconds;
    }
  }
}

TEST(ServerCookies, EveryBitCounts) {
  const ServerCookies cookies({kSecret});
  const Bytes cookie = apply(cookies, hex("2464c4abcf10c957"), kClient, kNow).data;
  for (size_t bit = 0; bit < cookie.size() * 8; ++bit) {
    Bytes wrong = cookie;
    wrong[bit / 8] = static_cast<uint8_t>(wrong[bit / 8] ^ 1u << bit % 8);
    EXPECT_EQ(apply(cookies, wrong, kClient, kNow).judgement, Judgement::kBad) << bit;
  }
  EXPECT_EQ(apply(cookies, cookie, *IpAddress::parse("198.51.100.101"), kNow).judgement, Judgement::kBad);
  EXPECT_EQ(apply(cookies, cookie, *IpAddress::parse("2001:db8::1"), kNow).judgement, Judgement::kBad);
}

TEST(ServerCookies, ARandomSecretIsAnotherOneEachDay) {
  const ServerCookies cookies = ServerCookies::withRandomSecret();
  constexpr uint32_t kMidnight = kNow / 86400 * 86400 + 86400;
  const Bytes evening = apply(cookies, hex("2464c4abcf10c957"), kClient, kMidnight - 600).data;
  EXPECT_EQ(apply(cookies, evening, kClient, kMidnight + 600).judgement, Judgement::kGood) << "no gap";
  EXPECT_EQ(apply(ServerCookies::withRandomSecret(), evening, kClient, kMidnight).judgement, Judgement::kBad);
}

}  // namespace
}  // namespace idetcd::dns
