#include "directive/nsid/identity.h"

#include <gtest/gtest.h>

#include "dns/response.h"
#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

constexpr uint16_t kTxt = 16;
constexpr uint16_t kChaos = 3;

class IdentityTest : public testing::Test {
 protected:
  resolve::QueryOutcome chaos(const Identity& identity, Message& message) {
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    const resolve::QueryOutcome outcome = identity.answerChaos(query, 512, 0);
    message.setResponse(outcome.size);
    return outcome;
  }

  std::optional<std::string> name_ = "worker7.tf.local.";
  Identity identity_{{.own_name = [this] { return name_; },
                      .own_addresses =
                          [] {
                            return std::vector{*IpAddress::parse("192.0.2.7"), *IpAddress::parse("2001:db8::7")};
                          },
                      .ttl_seconds = 9}};
};

TEST_F(IdentityTest, SaysTheNameWhileItIsOwned) {
  ASSERT_NE(identity_.text(), nullptr);
  EXPECT_EQ(*identity_.text(), "worker7.tf.local");
  const std::string* first = identity_.text();
  name_.reset();
  EXPECT_EQ(identity_.text(), nullptr);
  name_ = "worker8.tf.local.";
  EXPECT_EQ(*identity_.text(), "worker8.tf.local");
  EXPECT_EQ(*first, "worker7.tf.local") << "what was handed out stays";
}

TEST_F(IdentityTest, AnswersIdServerAndHostnameBind) {
  for (const char* qname : {"id.server.", "HOSTNAME.bind."}) {
    Message message(qname, kTxt, std::nullopt, kChaos);
    chaos(identity_, message);
    ASSERT_EQ(message.answers(), 1);
    const auto rdata = message.rdata(message.records()[0]);
    EXPECT_EQ(std::string(rdata.begin() + 1, rdata.end()), "worker7.tf.local");
    EXPECT_EQ(rdata[0], rdata.size() - 1);
  }
  Message version("version.bind.", kTxt, std::nullopt, kChaos);
  EXPECT_TRUE(chaos(identity_, version).isNext());
  name_.reset();
  Message unowned("id.server.", kTxt, std::nullopt, kChaos);
  chaos(identity_, unowned);
  EXPECT_EQ(unowned.rcode(), 5);
}

TEST_F(IdentityTest, KnowsItsOwnAddresses) {
  for (const char* text : {"192.0.2.7", "2001:db8::7"}) {
    const OwnAddress own = identity_.ownAddress(*IpAddress::parse(text));
    EXPECT_TRUE(own.is_own);
    EXPECT_EQ(own.name, dns::Name::parse("worker7.tf.local.").value());
    EXPECT_EQ(own.ttl_seconds, 9u);
  }
  EXPECT_FALSE(identity_.ownAddress(*IpAddress::parse("192.0.2.8")).is_own);
  name_.reset();
  EXPECT_TRUE(identity_.ownAddress(*IpAddress::parse("192.0.2.7")).is_own);
  EXPECT_EQ(identity_.ownAddress(*IpAddress::parse("192.0.2.7")).name, std::nullopt);
  const Identity observer({.own_name = [this] { return name_; }});
  EXPECT_FALSE(observer.ownAddress(*IpAddress::parse("192.0.2.7")).is_own);
}

TEST_F(IdentityTest, NsidDataIsSaidInstead) {
  const Identity fixed({.own_name = [this] { return name_; }, .nsid = "rack 12"});
  EXPECT_EQ(*fixed.text(), "rack 12");
}

TEST_F(IdentityTest, EveryKindOfResponseCarriesNsid) {
  Message message("x.example.", 1, 1232);
  dns::Query query;
  dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
  query.asked_options = dns::kAsksNsid;
  query.nsid = identity_.text();
  dns::ResponseBuilder response(query, 512);
  response.setEde(dns::EdeCode::kNotReady);
  message.setResponse(response.finish(dns::Rcode::kServFail, 0));
  const auto records = message.records();
  ASSERT_EQ(records.size(), 1u);
  const auto rdata = message.rdata(records[0]);
  ASSERT_EQ(rdata.size(), 6u + 4 + 16);
  EXPECT_EQ(dns::load16(&rdata[6]), 3) << "NSID behind EDE";
  EXPECT_EQ(std::string(rdata.begin() + 10, rdata.end()), "worker7.tf.local");
}

}  // namespace
}  // namespace idetcd::directive
