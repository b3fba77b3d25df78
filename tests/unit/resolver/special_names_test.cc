#include "resolver/special_names.h"

#include <gtest/gtest.h>

#include "support/query_fixture.h"

namespace idetcd::resolver {
namespace {

constexpr uint16_t kA = 1, kNs = 2, kSoa = 6, kPtr = 12, kTxt = 16, kAaaa = 28, kAny = 255;
const std::string kZeros = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.";

class SpecialNamesTest : public testing::Test {
 protected:
  // True if the name was answered; then message_ is the response.
  bool ask(std::string_view name, uint16_t qtype = kA) {
    message_ = Message(name, qtype, 1232);
    dns::Query query;
    EXPECT_EQ(dns::parseQuery(message_.data(), message_.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
    if (mayBeForwarded(query, named_, private_servers_)) return false;
    const resolve::QueryOutcome outcome = answerSpecialName(query, 1232);
    EXPECT_EQ(outcome.kind, resolve::QueryOutcome::Kind::kAnswer);
    message_.setResponse(outcome.size);
    EXPECT_TRUE(message_.flag(dns::kFlagAa));
    EXPECT_TRUE(message_.flag(dns::kFlagQr));
    return true;
  }
  void expectDenied(std::string_view name, uint16_t rcode, const std::string& zone, uint16_t qtype = kA) {
    ASSERT_TRUE(ask(name, qtype)) << name;
    EXPECT_EQ(message_.rcode(), rcode) << name;
    EXPECT_EQ(message_.answers(), 0) << name;
    ASSERT_EQ(message_.authorities(), 1) << name;
    const auto records = message_.records();
    ASSERT_EQ(records.size(), 2u) << name;
    EXPECT_EQ(records[0].owner, zone);
    EXPECT_EQ(records[0].type, kSoa);
    size_t pos = records[0].rdata;
    EXPECT_EQ(message_.nameAt(pos), zone);
    EXPECT_EQ(message_.nameAt(pos), "nobody.invalid.");
    EXPECT_EQ(pos + 20, records[0].rdata + records[0].rdata_size);
  }
  void expectNxDomain(std::string_view name, const std::string& zone) { expectDenied(name, 3, zone); }
  void expectNoData(std::string_view name, const std::string& zone, uint16_t qtype = kA) {
    expectDenied(name, 0, zone, qtype);
  }

  Message message_{".", 1};
  std::vector<dns::Name> named_;
  bool private_servers_ = false;
};

TEST_F(SpecialNamesTest, LocalhostIsHere) {
  for (const char* name : {"localhost.", "LocalHost.", "a.b.localhost."}) {
    ASSERT_TRUE(ask(name, kA)) << name;
    ASSERT_EQ(message_.answers(), 1);
    EXPECT_EQ(message_.rdata(message_.records()[0]), (std::vector<uint8_t>{127, 0, 0, 1}));
    ASSERT_TRUE(ask(name, kAaaa));
    ASSERT_EQ(message_.answers(), 1);
    EXPECT_EQ(message_.rdata(message_.records()[0]),
              (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}));
    expectNoData(name, "localhost.", kTxt);
  }
  ASSERT_TRUE(ask("localhost.", kAny));
  EXPECT_EQ(message_.answers(), 4);
}

TEST_F(SpecialNamesTest, LoopbackAddressesAreLocalhost) {
  const std::string v6 = "1.0." + kZeros + "ip6.arpa.";
  for (const std::string& name : {std::string("1.0.0.127.in-addr.arpa."), v6}) {
    ASSERT_TRUE(ask(name, kPtr)) << name;
    ASSERT_EQ(message_.answers(), 1) << name;
    const auto record = message_.records()[0];
    EXPECT_EQ(record.owner, name);
    size_t pos = record.rdata;
    EXPECT_EQ(message_.nameAt(pos), "localhost.");
  }
  expectNoData("1.0.0.127.in-addr.arpa.", "127.in-addr.arpa.", kA);
  expectNoData(v6, v6, kA);
  expectNoData("0.0.127.in-addr.arpa.", "127.in-addr.arpa.", kPtr);
  expectNoData("127.in-addr.arpa.", "127.in-addr.arpa.", kPtr);
  expectNxDomain("2.0.0.127.in-addr.arpa.", "127.in-addr.arpa.");
  expectNxDomain("9.1.0.0.127.in-addr.arpa.", "127.in-addr.arpa.");
  expectNxDomain("0." + v6, v6);
}

TEST_F(SpecialNamesTest, WhatMustNotLeakIsDenied) {
  for (const char* zone : {"alt.",
                           "home.arpa.",
                           "invalid.",
                           "test.",
                           "local.",
                           "onion.",
                           "10.in-addr.arpa.",
                           "16.172.in-addr.arpa.",
                           "31.172.in-addr.arpa.",
                           "168.192.in-addr.arpa.",
                           "254.169.in-addr.arpa.",
                           "2.0.192.in-addr.arpa.",
                           "100.51.198.in-addr.arpa.",
                           "113.0.203.in-addr.arpa.",
                           "255.255.255.255.in-addr.arpa.",
                           "0.in-addr.arpa.",
                           "64.100.in-addr.arpa.",
                           "127.100.in-addr.arpa.",
                           "d.f.ip6.arpa.",
                           "8.e.f.ip6.arpa.",
                           "9.e.f.ip6.arpa.",
                           "a.e.f.ip6.arpa.",
                           "b.e.f.ip6.arpa.",
                           "8.b.d.0.1.0.0.2.ip6.arpa."}) {
    expectNxDomain(std::string("a.") + zone, zone);
    expectNxDomain(std::string("A.b.C.") + zone, zone);
    expectNoData(zone, zone);
    ASSERT_TRUE(ask(zone, kSoa));
    EXPECT_EQ(message_.answers(), 1) << zone;
    ASSERT_TRUE(ask(zone, kNs));
    EXPECT_EQ(message_.answers(), 1) << zone;
  }
  expectNoData("0.0." + kZeros + "ip6.arpa.", "0.0." + kZeros + "ip6.arpa.");
  expectNoData("_dns.resolver.arpa.", "resolver.arpa.", 64);
}

TEST_F(SpecialNamesTest, TheWorldIsNotSpecial) {
  for (const char* name : {".",
                           "com.",
                           "example.org.",
                           "example.",
                           "localhost.example.org.",
                           "notlocalhost.",
                           "xlocal.",
                           "latest.",
                           "arpa.",
                           "in-addr.arpa.",
                           "8.8.8.8.in-addr.arpa.",
                           "15.172.in-addr.arpa.",
                           "32.172.in-addr.arpa.",
                           "169.192.in-addr.arpa.",
                           "63.100.in-addr.arpa.",
                           "128.100.in-addr.arpa.",
                           "110.in-addr.arpa.",
                           "ip6.arpa.",
                           "c.e.f.ip6.arpa.",
                           "salt.",
                           "homer.arpa.",
                           "ipv4only.arpa.",
                           "t.",
                           "l."}) {
    EXPECT_FALSE(ask(name)) << name;
  }
}

TEST_F(SpecialNamesTest, LabelsThatEndAlikeAreNotMistaken) {
  // The last label is "x\005local", of seven bytes.
  Message message("aaaaaaa.", kA);
  const std::string_view label("\x07x\x05local", 8);
  std::copy(label.begin(), label.end(), message.data() + dns::kHeaderSize);
  dns::Query query;
  ASSERT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
  EXPECT_TRUE(answerSpecialName(query, 1232).isNext());
}

TEST_F(SpecialNamesTest, WhatIsForwardedByNameIsNotSpecial) {
  named_ = {dns::Name::parse("10.in-addr.arpa.").value(), dns::Name::parse("corp.test.").value(),
            dns::Name::parse("localhost.").value(),       dns::Name::parse("127.in-addr.arpa.").value(),
            dns::Name::parse("corp.home.arpa.").value(),  dns::Name{}};
  EXPECT_FALSE(ask("1.10.in-addr.arpa.", kPtr));
  EXPECT_FALSE(ask("www.corp.test."));
  EXPECT_FALSE(ask("nas.corp.home.arpa."));
  EXPECT_TRUE(ask("nas.home.arpa.")) << "not within what is named";
  EXPECT_TRUE(ask("www.test.")) << "FROM is below, the name is not";
  EXPECT_TRUE(ask("a.168.192.in-addr.arpa.")) << "the root is no wish for this zone";
  EXPECT_TRUE(ask("localhost."));
  EXPECT_TRUE(ask("1.0.0.127.in-addr.arpa.", kPtr));
}

TEST_F(SpecialNamesTest, AZoneAboveMayBeNamedToo) {
  named_ = {dns::Name::parse("in-addr.arpa.").value()};
  EXPECT_FALSE(ask("1.10.in-addr.arpa.", kPtr));
  EXPECT_FALSE(ask("1.254.169.in-addr.arpa.", kPtr));
  EXPECT_TRUE(ask("x.d.f.ip6.arpa.", kPtr));
  EXPECT_TRUE(ask("1.0.0.127.in-addr.arpa.", kPtr));
}

TEST_F(SpecialNamesTest, PrivateServersAreAskedForTheirNetworksNames) {
  private_servers_ = true;
  for (const char* name :
       {"printer.local.", "nas.home.arpa.", "1.0.0.10.in-addr.arpa.", "1.0.16.172.in-addr.arpa.",
        "1.0.31.172.in-addr.arpa.", "1.0.168.192.in-addr.arpa.", "1.0.64.100.in-addr.arpa.", "1.d.f.ip6.arpa."}) {
    EXPECT_FALSE(ask(name)) << name;
  }
  for (const char* name :
       {"a.localhost.", "x.alt.", "x.invalid.", "x.onion.", "x.test.", "1.254.169.in-addr.arpa.",
        "2.0.0.127.in-addr.arpa.", "1.2.0.192.in-addr.arpa.", "1.8.e.f.ip6.arpa.", "_dns.resolver.arpa."}) {
    EXPECT_TRUE(ask(name)) << name;
  }
}

TEST_F(SpecialNamesTest, TheParentHasTheDs) {
  constexpr uint16_t kDs = 43;
  for (const char* zone : {"home.arpa.", "10.in-addr.arpa.", "d.f.ip6.arpa."}) {
    EXPECT_FALSE(ask(zone, kDs)) << zone;
    expectDenied(std::string("a.") + zone, 3, zone, kDs);
  }
  for (const char* zone : {"onion.", "alt.", "local.", "127.in-addr.arpa.", "resolver.arpa."}) {
    expectNoData(zone, zone, kDs);
  }
}

// Another Corefile, or another resolv.conf, may have it forwarded in a minute.
TEST_F(SpecialNamesTest, DenialsAreShortLived) {
  for (const char* name : {"x.local.", "x.alt.", "1.0.0.10.in-addr.arpa."}) {
    ASSERT_TRUE(ask(name));
    const auto soa = message_.records().at(0);
    EXPECT_EQ(soa.ttl, 60u) << name;
    EXPECT_EQ(dns::load32(message_.data() + soa.rdata + soa.rdata_size - 4), 60u) << "RFC 2308 §5: the lesser counts";
  }
  ASSERT_TRUE(ask("localhost."));
  EXPECT_EQ(message_.records().at(0).ttl, 10800u);
}

TEST_F(SpecialNamesTest, AnErrorCodeSaysWhoAnswers) {
  ASSERT_TRUE(ask("x.local."));
  const auto opt = message_.records().back();
  const auto option = message_.rdata(opt);
  ASSERT_GT(option.size(), 6u);
  EXPECT_EQ(dns::load16(option.data()), dns::code(dns::EdnsOption::kEde));
  EXPECT_EQ(dns::load16(option.data() + 2), option.size() - 4);
  EXPECT_EQ(dns::load16(option.data() + 4), dns::code(dns::EdeCode::kSynthesized));
  EXPECT_EQ(std::string(option.begin() + 6, option.end()), "special name: answered here, not forwarded");
}

}  // namespace
}  // namespace idetcd::resolver
