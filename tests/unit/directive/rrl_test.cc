// Limits on the rate of responses: accounts, what is counted together, and who is not limited.
#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "dns/record.h"
#include "dns/response.h"
#include "directive/rrl/response_limiter.h"
#include "support/metric_values.h"
#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

using namespace std::chrono_literals;
using RateVerdict = resolve::RateLimiter::RateVerdict;

class RateTableTest : public testing::Test {
 protected:
  // How many of `count` uses at this moment are allowed, at ten a second.
  int allowed(RateTable& table, uint64_t key, int count) {
    int allowed = 0;
    for (int i = 0; i < count; ++i) allowed += table.use(key, 100ms, 15s, now_) == 0 ? 1 : 0;
    return allowed;
  }

  BootClock::time_point now_ = BootClock::now();
  RateTable table_{1000};
};

TEST_F(RateTableTest, ASecondsWorthAtOnce) {
  EXPECT_EQ(allowed(table_, 1, 10), 10);
  now_ += 100ms;
  EXPECT_EQ(allowed(table_, 1, 1), 1);
  EXPECT_EQ(allowed(table_, 2, 1), 1) << "another account";
  now_ += 1h;
  EXPECT_EQ(allowed(table_, 1, 10), 10) << "no more is saved up";
  EXPECT_EQ(table_.use(1, 100ms, 15s, now_), 1u);
  EXPECT_EQ(table_.use(1, 100ms, 15s, now_), 2u) << "refused ones are counted";
}

TEST_F(RateTableTest, WhoGoesOnIsRefusedOn) {
  EXPECT_EQ(allowed(table_, 1, 10 + 50), 10);
  now_ += 4900ms;
  EXPECT_EQ(allowed(table_, 1, 1), 0) << "fifty too many are five seconds";
  now_ += 300ms;
  EXPECT_EQ(allowed(table_, 1, 1), 1);
  allowed(table_, 1, 100000);
  now_ += 15200ms;
  EXPECT_EQ(allowed(table_, 1, 1), 1) << "debt ends with the window";
}

TEST_F(RateTableTest, OfAFullTableTheLeastIndebtedGoes) {
  RateTable small(4);
  allowed(small, 0, 200);
  for (uint64_t key = 1; key < 1000; ++key) allowed(small, key << 32, 1);
  EXPECT_EQ(allowed(small, 0, 1), 0) << "who floods is not forgotten";
}

constexpr uint16_t kA = 1;
constexpr uint16_t kAaaa = 28;

std::vector<uint8_t> wireOf(std::string_view name) {
  const auto parsed = dns::Name::parse(name).value();
  return {parsed.wire().begin(), parsed.wire().end()};
}

class ResponseLimiterTest : public testing::Test {
 protected:
  void limitTo(RrlSettings settings) {
    settings.zones = {dns::Name{}};
    limiter_.reset();
    registry_ = std::make_unique<metrics::Registry>();
    limiter_ = std::make_unique<ResponseLimiter>(std::move(settings), 7, registry_->scope());
  }
  double counted(const std::string& metric) const { return test_support::valuesOf(*registry_).at(metric); }
  static RrlSettings perSecond(uint32_t answers, uint32_t no_data = 0, uint32_t nxdomains = 0, uint32_t referrals = 0,
                               uint32_t errors = 0) {
    return {.zones = {}, .responses = {answers, no_data, nxdomains, referrals, errors}};
  }

  // One exchange: what becomes of it. `authority`: type and owner of a record there.
  struct Exchange {
    std::string name = "www.example.org.";
    uint16_t qtype = kA;
    dns::Rcode rcode = dns::Rcode::kNoError;
    bool answer = false;
    std::optional<std::pair<dns::RrType, std::string>> authority{};
    std::string client = "192.0.2.1";
    resolve::Transport transport = resolve::Transport::kUdp;
    bool good_cookie = false;
    uint32_t wildcard = 0;
  };
  RateVerdict judge(const Exchange& exchange) {
    Message message(exchange.name, exchange.qtype, 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    if (exchange.good_cookie) {
      query.asked_options = dns::kAsksCookie;
      query.cookie = {.client = {}, .server = {}, .judgement = dns::Cookie::Judgement::kGood, .in_response = true};
    }
    dns::ResponseBuilder response(query, 512);
    std::array<uint8_t, 16> address;
    dns::putRecordHead(address.data(), dns::kQuestionPointer, dns::RrType::kA, 60, 4);
    if (exchange.answer) response.addAnswer(address, 1);
    if (exchange.authority) {
      std::vector<uint8_t> record = wireOf(exchange.authority->second);
      const size_t owner_size = record.size();
      record.resize(owner_size + 10);
      dns::store16(&record[owner_size], dns::code(exchange.authority->first));
      response.addAuthority(record, 1);
    }
    const size_t size = response.finish(exchange.rcode, 0);
    sockaddr_storage source;
    SocketAddress{.ip = *IpAddress::parse(exchange.client), .port = 5353}.toSockaddr(&source);
    const resolve::Request request{
        .source = reinterpret_cast<const sockaddr*>(&source), .transport = exchange.transport, .response_limit = 512};
    may_ask_ = limiter_->mayAsk(query, request);
    return limiter_->judge(query, request, {query.message, size}, exchange.wildcard);
  }
  bool isSent(const Exchange& exchange) { return judge(exchange) == RateVerdict::kSend; }
  static Exchange answerTo(const std::string& client, const std::string& name = "www.example.org.",
                           uint16_t qtype = kA) {
    return {.name = name, .qtype = qtype, .answer = true, .client = client};
  }
  static Exchange missing(const std::string& name, const std::string& zone) {
    return {.name = name, .rcode = dns::Rcode::kNxDomain, .authority = std::pair(dns::RrType::kSoa, zone)};
  }

  std::unique_ptr<metrics::Registry> registry_;
  std::unique_ptr<ResponseLimiter> limiter_;
  bool may_ask_ = true;
};

TEST_F(ResponseLimiterTest, NamesOfOneWildcardAreOne) {
  limitTo(perSecond(1, 1));
  const auto sent = [this](const std::string& name, bool answer, uint32_t wildcard) {
    return isSent({.name = name, .answer = answer, .wildcard = wildcard});
  };
  EXPECT_TRUE(sent("a.example.org.", true, 7));
  EXPECT_FALSE(sent("b.example.org.", true, 7));
  EXPECT_TRUE(sent("b.example.org.", true, 8)) << "another wildcard";
  EXPECT_TRUE(sent("b.example.org.", true, 0)) << "a name of its own";
  EXPECT_TRUE(sent("c.example.org.", false, 7)) << "a denial has an account of its own";
  EXPECT_FALSE(sent("d.example.org.", false, 7));
}

TEST_F(ResponseLimiterTest, ANetworkIsOneClient) {
  limitTo(perSecond(1));
  EXPECT_TRUE(isSent(answerTo("192.0.2.1")));
  EXPECT_FALSE(isSent(answerTo("192.0.2.254")));
  EXPECT_TRUE(isSent(answerTo("192.0.3.1")));
  EXPECT_TRUE(isSent(answerTo("2001:db8:0:1::1")));
  EXPECT_FALSE(isSent(answerTo("2001:db8:0:ff::1")));
  EXPECT_TRUE(isSent(answerTo("2001:db8:0:100::1")));
  EXPECT_FALSE(isSent(answerTo("::ffff:192.0.2.7"))) << "an IPv4 address, however it is written";
  EXPECT_TRUE(isSent(answerTo("127.0.0.1")));
  EXPECT_FALSE(isSent(answerTo("127.0.0.1"))) << "loopback is a network like others";
  EXPECT_TRUE(isSent(answerTo("192.0.2.1", "other.example.org.")));
  EXPECT_TRUE(isSent(answerTo("192.0.2.1", "www.example.org.", kAaaa)));
  EXPECT_FALSE(isSent(answerTo("192.0.2.1", "WWW.example.org.")));
}

TEST_F(ResponseLimiterTest, PrefixesOfAnyLength) {
  RrlSettings settings = perSecond(1);
  settings.ipv4_prefix = 31;
  settings.ipv6_prefix = 127;
  limitTo(std::move(settings));
  EXPECT_TRUE(isSent(answerTo("192.0.2.2")));
  EXPECT_FALSE(isSent(answerTo("192.0.2.3")));
  EXPECT_TRUE(isSent(answerTo("192.0.2.1")));
  EXPECT_TRUE(isSent(answerTo("2001:db8::2")));
  EXPECT_FALSE(isSent(answerTo("2001:db8::3")));
}

TEST_F(ResponseLimiterTest, DenialsOfOneZoneAreCountedTogether) {
  limitTo(perSecond(0, 0, 1));
  EXPECT_TRUE(isSent(missing("a.example.org.", "example.org.")));
  EXPECT_FALSE(isSent(missing("b.c.example.org.", "Example.ORG."))) << "any random name";
  EXPECT_TRUE(isSent(missing("a.example.net.", "example.net.")));
  const auto without_soa = [](const char* name) { return Exchange{.name = name, .rcode = dns::Rcode::kNxDomain}; };
  EXPECT_TRUE(isSent(without_soa("a.example.com.")));
  EXPECT_FALSE(isSent(without_soa("b.example.com.")));
  EXPECT_TRUE(isSent(answerTo("192.0.2.1")));
  EXPECT_TRUE(isSent(answerTo("192.0.2.1"))) << "answers have no limit";
}

TEST_F(ResponseLimiterTest, NoDataReferralsAndErrors) {
  limitTo(perSecond(0, 1, 0, 1, 1));
  const auto soa = std::pair(dns::RrType::kSoa, std::string("example.org."));
  EXPECT_TRUE(isSent({.authority = soa}));
  EXPECT_FALSE(isSent({.qtype = kAaaa, .authority = soa})) << "of whatever type";
  EXPECT_TRUE(isSent({.name = "a.example.org.", .authority = soa}));
  const auto ns = std::pair(dns::RrType::kNs, std::string("sub.example.org."));
  EXPECT_TRUE(isSent({.name = "a.sub.example.org.", .authority = ns}));
  EXPECT_FALSE(isSent({.name = "b.sub.example.org.", .authority = ns}));
  EXPECT_TRUE(isSent({.rcode = dns::Rcode::kRefused}));
  EXPECT_FALSE(isSent({.name = "a.example.net.", .rcode = dns::Rcode::kServFail})) << "all errors are one";
}

TEST_F(ResponseLimiterTest, WhoIsWhoItSaysIsNotLimited) {
  limitTo(perSecond(1));
  Exchange exchange = answerTo("192.0.2.1");
  EXPECT_TRUE(isSent(exchange));
  EXPECT_FALSE(isSent(exchange));
  exchange.transport = resolve::Transport::kTcp;
  EXPECT_TRUE(isSent(exchange));
  exchange.transport = resolve::Transport::kUdp;
  exchange.good_cookie = true;
  EXPECT_TRUE(isSent(exchange));
}

TEST_F(ResponseLimiterTest, EachNthSlipsThrough) {
  for (const auto& [ratio, verdicts] : {std::pair{0u, "ddd"}, {1u, "ttt"}, {2u, "dtd"}, {3u, "ddt"}}) {
    RrlSettings settings = perSecond(1);
    settings.slip_ratio = ratio;
    limitTo(std::move(settings));
    EXPECT_TRUE(isSent(answerTo("192.0.2.1")));
    std::string seen;
    for (int i = 0; i < 3; ++i) seen += judge(answerTo("192.0.2.1")) == RateVerdict::kTruncate ? 't' : 'd';
    EXPECT_EQ(seen, verdicts) << ratio;
    EXPECT_EQ(counted("idetcd_rrl_responses_exceeded_total"), 3);
    EXPECT_EQ(counted("idetcd_rrl_dropped_total") + counted("idetcd_rrl_slipped_total"), 3);
    EXPECT_EQ(counted("idetcd_rrl_slipped_total"), std::ranges::count(seen, 't'));
  }
}

TEST_F(ResponseLimiterTest, RequestsAreCountedWhateverTheyAskFor) {
  RrlSettings settings = perSecond(0);
  settings.requests = 2;
  limitTo(std::move(settings));
  for (const bool expected : {true, true, false}) {
    judge(answerTo("192.0.2.1", expected ? "a.example.org." : "b.example.org."));
    EXPECT_EQ(may_ask_, expected);
  }
  EXPECT_EQ(counted("idetcd_rrl_requests_exceeded_total"), 1);
  EXPECT_EQ(counted("idetcd_rrl_dropped_total"), 1);
}

TEST_F(ResponseLimiterTest, ReportOnlyDropsNothing) {
  RrlSettings settings = perSecond(1);
  settings.report_only = true;
  settings.requests = 1;
  limitTo(std::move(settings));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(isSent(answerTo("192.0.2.1")) && may_ask_);
  EXPECT_EQ(counted("idetcd_rrl_responses_exceeded_total"), 2);
  EXPECT_EQ(counted("idetcd_rrl_requests_exceeded_total"), 2);
  EXPECT_EQ(counted("idetcd_rrl_dropped_total"), 0);
}

TEST_F(ResponseLimiterTest, ASlippedResponseIsNoLargerThanTheQueryButForItsOptions) {
  limitTo(perSecond(1));
  Message message("www.example.org.", kA, 1232);
  dns::Query query;
  dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
  sockaddr_storage source;
  SocketAddress{.ip = *IpAddress::parse("192.0.2.1"), .port = 5353}.toSockaddr(&source);
  const resolve::Request request{.source = reinterpret_cast<const sockaddr*>(&source), .response_limit = 1232};
  size_t left = 1;
  for (int i = 0; i < 3; ++i) {
    dns::ResponseBuilder response(query, 1232);
    const std::vector<uint8_t> big(1000);
    response.addAnswer(big, 1);
    left = limiter_->limit(query, request, response.finish(dns::Rcode::kNoError, dns::kFlagRa), 0);
    if (i == 1) {
      EXPECT_EQ(left, 0u);
    }
  }
  EXPECT_EQ(left, message.size());
  message.setResponse(left);
  EXPECT_TRUE(message.flag(dns::kFlagTc) && message.flag(dns::kFlagRa));
  EXPECT_EQ(message.answers(), 0);
}

}  // namespace
}  // namespace idetcd::directive
