#include "resolver/rebinding_filter.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "directive/private/setup.h"
#include "support/metric_values.h"
#include "support/query_fixture.h"
#include "support/upstream_message.h"

namespace idetcd::resolver {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint16_t kA = 1;
constexpr uint16_t kMx = 15;
constexpr uint16_t kAaaa = 28;
constexpr uint16_t kSvcb = 64;
constexpr uint16_t kHttps = 65;
const std::string kName = "www.example.org.";

std::vector<dns::Name> zones(std::string_view zone) { return {dns::Name::parse(zone).value()}; }

Bytes bytesOf(std::string_view address) {
  const IpAddress ip = IpAddress::parse(address).value();
  return {ip.data(), ip.data() + ip.size()};
}

// SvcPriority 1, TargetName ".", and one parameter.
Bytes serviceWith(uint8_t key, const Bytes& value) {
  Bytes rdata{0, 1, 0, 0, key, 0, static_cast<uint8_t>(value.size())};
  rdata.insert(rdata.end(), value.begin(), value.end());
  return rdata;
}

class RebindingFilterTest : public testing::Test {
 protected:
  void use(const PrivateSettings& settings) {
    filter_ = std::make_unique<RebindingFilter>(
        std::make_shared<const directive::Acl>(directive::makePrivateRules(settings)), nullptr, registry_.scope());
  }
  void SetUp() override { use({.zones = zones("."), .allowed = {}, .networks = {}}); }

  RebindingFilter::Response apply(const UpstreamMessage& upstream, uint16_t qtype = kA,
                                  const std::string& qname = kName) {
    Message message(qname, qtype, 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    auto response = std::make_shared<StoredResponse>();
    EXPECT_EQ(readUpstreamResponse(upstream.bytes, 0xbeef, query, *response), UpstreamVerdict::kAccepted);
    return filter_->apply(query, response);
  }
  bool isWithheld(const UpstreamMessage& upstream, uint16_t qtype = kA, const std::string& qname = kName) {
    const auto response = apply(upstream, qtype, qname);
    return response->packed->answers == 0 && response->packed->has_ede &&
           response->packed->ede == dns::code(dns::EdeCode::kBlocked);
  }
  bool isAddressWithheld(std::string_view address, const std::string& qname = kName) {
    const Bytes rdata = bytesOf(address);
    const uint16_t qtype = rdata.size() == 4 ? kA : kAaaa;
    return isWithheld(UpstreamMessage(qname, qtype).record(UpstreamMessage::kAnswer, qname, qtype, 300, rdata), qtype,
                      qname);
  }
  bool isServiceWithheld(uint16_t qtype, const Bytes& rdata) {
    return isWithheld(UpstreamMessage(kName, qtype).record(UpstreamMessage::kAnswer, kName, qtype, 300, rdata), qtype);
  }

  metrics::Registry registry_;
  std::unique_ptr<RebindingFilter> filter_;
};

TEST_F(RebindingFilterTest, EveryPrivateNetworkIsWithheldUpToItsEdges) {
  for (const char* address : {"0.0.0.0",
                              "0.255.255.255",
                              "10.0.0.0",
                              "10.255.255.255",
                              "100.64.0.0",
                              "100.127.255.255",
                              "127.0.0.1",
                              "127.255.255.255",
                              "169.254.0.0",
                              "169.254.169.254",
                              "172.16.0.0",
                              "172.31.255.255",
                              "192.168.0.0",
                              "192.168.255.255",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "fc00::",
                              "fdff::1",
                              "fe80::1",
                              "febf::1",
                              "fec0::1",
                              "::ffff:10.0.0.1",
                              "::ffff:127.0.0.1",
                              "64:ff9b::10.0.0.1",
                              "64:ff9b::127.0.0.1",
                              "2002:a00:1::1"}) {
    EXPECT_TRUE(isAddressWithheld(address)) << address;
  }
  for (const char* address : {"1.0.0.0",
                              "9.255.255.255",
                              "11.0.0.0",
                              "100.63.255.255",
                              "100.128.0.0",
                              "126.255.255.255",
                              "128.0.0.0",
                              "169.253.255.255",
                              "169.255.0.0",
                              "172.15.255.255",
                              "172.32.0.0",
                              "192.167.255.255",
                              "192.169.0.0",
                              "198.51.100.1",
                              "255.255.255.254",
                              "::2",
                              "fbff::1",
                              "fe00::1",
                              "ff02::1",
                              "2001:db8::1",
                              "::ffff:192.0.2.1",
                              "64:ff9b::192.0.2.1",
                              "64:ff9b:1::10.0.0.1",
                              "2002:c000:201::1"}) {
    EXPECT_FALSE(isAddressWithheld(address)) << address;
  }
  EXPECT_EQ(test_support::sumOf(registry_, "idetcd_private_withheld_total"), 27);
}

TEST_F(RebindingFilterTest, OneAddressWithholdsTheAnswerAtTheEndOfAChainToo) {
  EXPECT_TRUE(isWithheld(UpstreamMessage(kName, kA).a(kName, 60, {192, 0, 2, 1}).a(kName, 60, {10, 0, 0, 1})));
  UpstreamMessage chain(kName, kA);
  chain.cname(kName, "a.example.net.").cname("a.example.net.", "b.example.com.").a("b.example.com.", 60, {10, 0, 0, 1});
  EXPECT_TRUE(isWithheld(chain));
}

TEST_F(RebindingFilterTest, WhatIsWithheldIsKeptAsLongAsTheAnswer) {
  const auto response = apply(UpstreamMessage(kName, kA).a(kName, 77, {10, 0, 0, 1}));
  EXPECT_EQ(response->kind, ResponseKind::kNoData);
  EXPECT_EQ(response->ttl_seconds, 77u);
  EXPECT_EQ(response->packed->rcode, dns::Rcode::kNoError);
  EXPECT_EQ(response->packed->counts() & 0xffffffffffff, 0u) << "no record of any section";
  const auto uncacheable = apply(UpstreamMessage(kName, kA).a(kName, 0, {10, 0, 0, 1}));
  EXPECT_EQ(uncacheable->kind, ResponseKind::kUncacheable);
}

TEST_F(RebindingFilterTest, HintsAreAddresses) {
  for (const uint16_t type : {kSvcb, kHttps}) {
    EXPECT_TRUE(isServiceWithheld(type, serviceWith(4, bytesOf("10.0.0.1"))));
    EXPECT_TRUE(isServiceWithheld(type, serviceWith(6, bytesOf("fd00::1"))));
    EXPECT_TRUE(isServiceWithheld(type, serviceWith(6, bytesOf("::ffff:192.168.1.1"))));
    EXPECT_FALSE(isServiceWithheld(type, serviceWith(4, bytesOf("192.0.2.1"))));
    EXPECT_FALSE(isServiceWithheld(type, serviceWith(6, bytesOf("2001:db8::1"))));
    EXPECT_FALSE(isServiceWithheld(type, serviceWith(5, bytesOf("10.0.0.1")))) << "another parameter";
    EXPECT_FALSE(isServiceWithheld(type, {0, 0, 1, 'a', 0})) << "an alias";
  }
  Bytes two = bytesOf("192.0.2.1");
  const Bytes second = bytesOf("10.0.0.1");
  two.insert(two.end(), second.begin(), second.end());
  EXPECT_TRUE(isServiceWithheld(kHttps, serviceWith(4, two))) << "the second hint";
}

TEST_F(RebindingFilterTest, AServiceThatCannotBeReadIsWithheld) {
  EXPECT_TRUE(isServiceWithheld(kHttps, {}));
  EXPECT_TRUE(isServiceWithheld(kHttps, {0, 1}));
  EXPECT_TRUE(isServiceWithheld(kHttps, {0, 1, 5, 'a'}));
  EXPECT_TRUE(isServiceWithheld(kHttps, {0, 1, 0, 0, 4, 0}));
  EXPECT_TRUE(isServiceWithheld(kHttps, {0, 1, 0, 0, 4, 0, 4, 192, 0, 2}));
  EXPECT_TRUE(isServiceWithheld(kHttps, serviceWith(4, {192, 0, 2})));
}

TEST_F(RebindingFilterTest, TheNameThatWasAskedForDecides) {
  use({.zones = zones("."), .allowed = zones("corp.example.org."), .networks = {}});
  EXPECT_FALSE(isAddressWithheld("10.0.0.1", "nas.corp.example.org."));
  EXPECT_FALSE(isAddressWithheld("10.0.0.1", "corp.example.org."));
  EXPECT_TRUE(isAddressWithheld("10.0.0.1", "notcorp.example.org."));
  UpstreamMessage inwards(kName, kA);
  inwards.cname(kName, "nas.corp.example.org.").a("nas.corp.example.org.", 60, {10, 0, 0, 1});
  EXPECT_TRUE(isWithheld(inwards)) << "whose page it is knows it by the first name";
  const std::string own = "nas.corp.example.org.";
  EXPECT_FALSE(isWithheld(UpstreamMessage(own, kA).cname(own, kName).a(kName, 60, {10, 0, 0, 1}), kA, own));
}

TEST_F(RebindingFilterTest, ZonesNetworksAndLoopback) {
  use({.zones = zones("example.org."), .allowed = {}, .networks = {}, .allow_loopback = true});
  EXPECT_FALSE(isAddressWithheld("10.0.0.1", "www.example.net."));
  EXPECT_TRUE(isAddressWithheld("10.0.0.1"));
  for (const char* address : {"127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_FALSE(isAddressWithheld(address)) << address;
  }
  EXPECT_TRUE(isAddressWithheld("0.0.0.0"));
  use({.zones = zones("."), .allowed = {}, .networks = {IpNetwork::parse("192.0.2.0/24").value()}});
  EXPECT_TRUE(isAddressWithheld("192.0.2.77"));
  EXPECT_FALSE(isAddressWithheld("10.0.0.1"));
}

TEST_F(RebindingFilterTest, AnAdditionalSectionGoesAlone) {
  const auto mx = [](std::vector<uint8_t> address) {
    Bytes rdata{0, 10};
    const Bytes host = UpstreamMessage::name("mx.example.org.");
    rdata.insert(rdata.end(), host.begin(), host.end());
    UpstreamMessage message(kName, kMx);
    message.record(UpstreamMessage::kAnswer, kName, kMx, 300, rdata);
    return message.a("mx.example.org.", 60, std::move(address), UpstreamMessage::kAdditional);
  };
  const auto harmless = apply(mx({192, 0, 2, 1}), kMx);
  EXPECT_EQ(harmless->packed->additionals, 1);
  const auto response = apply(mx({10, 0, 0, 1}), kMx);
  EXPECT_EQ(response->packed->answers, 1);
  EXPECT_EQ(response->packed->additionals, 0);
  EXPECT_FALSE(response->packed->has_ede);
  EXPECT_EQ(response->packed->body().size(), harmless->packed->authority_end);
  EXPECT_EQ(response->packed->ttlOffsets().size(), 1u);
}

}  // namespace
}  // namespace idetcd::resolver
