#include "resolver/zone_limiter.h"

#include <gtest/gtest.h>

#include "support/forward_fixture.h"

namespace idetcd::resolver {
namespace {

std::vector<dns::Name> names(std::initializer_list<const char*> texts) {
  std::vector<dns::Name> all;
  for (const char* text : texts) all.push_back(dns::Name::parse(text).value());
  return all;
}

class ZoneLimiterTest : public ForwardFixture {
 protected:
  void use(ZoneLimiter::Options options) {
    if (options.zones.empty()) options.zones = names({"."});
    limiter_ = std::make_shared<ZoneLimiter>(std::move(options), HashSeed{}, registry_.scope());
  }
  void SetUp() override { use({.outstanding = 2}); }
  // A denial of `qname` with the SOA of `zone`, behind a CNAME or not.
  void learn(const std::string& qname, const std::string& zone, bool behind_cname = false) {
    Message message(qname, 1, 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    UpstreamMessage denial(qname, 1, 0x8183);
    if (behind_cname) denial.cname(qname, "target." + zone);
    StoredResponse response;
    ASSERT_EQ(readUpstreamResponse(denial.soa(zone, 300, 300).bytes, 0xbeef, query, response),
              UpstreamVerdict::kAccepted);
    limiter_->learn(query, response);
  }
  std::string zone(std::string_view name) const {
    return dns::nameToString(limiter_->zoneOf(dns::Name::parse(name).value().wire()).data());
  }
  std::optional<ZoneLimiter::Ticket> begin(std::string_view name) {
    Message message(name, 1, 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    return limiter_->begin(query);
  }

  std::shared_ptr<ZoneLimiter> limiter_;
};

TEST_F(ZoneLimiterTest, AZoneThatIsNotKnownBeginsBelowAPublicSuffix) {
  const std::pair<const char*, const char*> cases[] = {
      {"a.b.example.com.", "example.com."},
      {"example.com.", "example.com."},
      {"com.", "com."},
      {".", "."},
      {"a.b.example.co.uk.", "example.co.uk."},
      {"a.example.com.au.", "example.com.au."},
      {"a.b.co.example.", "co.example."},
      {"a.b.example.uk.", "example.uk."},
      {"4.3.2.1.in-addr.arpa.", "2.1.in-addr.arpa."},
      {"a.9.8.7.6.5.4.3.2.1.ip6.arpa.", "8.7.6.5.4.3.2.1.ip6.arpa."},
      {"in-addr.arpa.", "in-addr.arpa."},
  };
  for (const auto& [name, expected] : cases) EXPECT_EQ(zone(name), expected) << name;
  use({.suffixes = names({"dyn.example.org."})});
  EXPECT_EQ(zone("a.b.home.dyn.example.org."), "home.dyn.example.org.");
  EXPECT_EQ(zone("a.b.example.org."), "example.org.");
}

TEST_F(ZoneLimiterTest, DenialsTellWhereZonesBegin) {
  learn("no.host.eu.cloud.example.com.", "cloud.example.com.");
  EXPECT_EQ(zone("a.us.cloud.example.com."), "cloud.example.com.");
  EXPECT_EQ(zone("cloud.example.com."), "cloud.example.com.");
  EXPECT_EQ(zone("www.example.com."), "example.com.");
  learn("nothing.com.", "com.");
  EXPECT_EQ(zone("a.other.com."), "other.com.") << "not all of com.";
  learn("no.alias.example.net.", "alias.example.net.", true);
  EXPECT_EQ(zone("a.alias.example.net."), "example.net.") << "said of the target";
}

TEST_F(ZoneLimiterTest, AsManyOfAZoneAsMayBe) {
  auto first = begin("a.example.org.");
  const auto second = begin("b.example.org.");
  EXPECT_TRUE(first && second);
  EXPECT_FALSE(begin("c.d.example.org."));
  EXPECT_TRUE(begin("c.example.net."));
  EXPECT_EQ(counted("idetcd_zonelimit_refused_total"), 1u);
  first.reset();
  EXPECT_TRUE(begin("c.example.org."));
  EXPECT_EQ(limiter_->zones(), 1u) << "of the others nothing is left";
}

TEST_F(ZoneLimiterTest, OnlyTheZonesThatAreNamed) {
  use({.outstanding = 1, .zones = names({"example.org."})});
  const auto first = begin("a.example.org.");
  EXPECT_FALSE(begin("b.example.org."));
  const auto other = begin("a.example.net.");
  EXPECT_TRUE(begin("b.example.net."));
}

TEST_F(ZoneLimiterTest, QuestionsThatAreAnsweredOrGivenUpCountNoLonger) {
  auto& silent = upstream([](const Asked& asked, const Reply& reply) {
    if (!asked.name().ends_with("silent.example.")) reply.send(asked.answer());
  });
  Forwarder::Options options = hastyOptionsFor({silent.target()});
  options.zones = limiter_;
  make(options);
  const Answer one = ask("a.silent.example.");
  const Answer two = ask("b.silent.example.");
  const Answer again = ask("b.silent.example.");
  const Answer refused = ask("c.silent.example.");
  ASSERT_TRUE(refused->has_value()) << "at once";
  EXPECT_EQ((*refused)->rcode, dns::Rcode::kServFail);
  EXPECT_TRUE((*refused)->overloaded) << "nothing to remember";
  EXPECT_FALSE(again->has_value()) << "it is on its way already";
  EXPECT_EQ(resolve("www.example.org.").rcode, dns::Rcode::kNoError);
  wait(one);
  wait(two);
  wait(again);
  EXPECT_EQ(limiter_->zones(), 0u);
  const Answer later = ask("c.silent.example.");
  EXPECT_FALSE(later->has_value());
  forwarder_.reset();
  EXPECT_EQ(limiter_->zones(), 0u);
}

TEST_F(ZoneLimiterTest, AForwarderLearnsFromWhatItIsAnswered) {
  auto& server = upstream([](const Asked& asked, const Reply& reply) {
    reply.send(asked.response(0x8183).soa("lab.example.org.", 300, 300).bytes);
  });
  Forwarder::Options options = optionsFor({server.target()});
  options.zones = limiter_;
  make(options);
  resolve("a.b.lab.example.org.");
  EXPECT_EQ(zone("c.lab.example.org."), "lab.example.org.");
}

}  // namespace
}  // namespace idetcd::resolver
