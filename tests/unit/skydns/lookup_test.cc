#include "skydns/lookup.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/query_fixture.h"
#include "support/upstream_message.h"

namespace idetcd::skydns {
namespace {

using Texts = std::vector<std::string>;
using Outcome = Lookup::Outcome;
using Aliases = Lookup::Aliases;

constexpr uint16_t kA = 1;
constexpr uint16_t kNs = 2;
constexpr uint16_t kCname = 5;
constexpr uint16_t kSoa = 6;
constexpr uint16_t kPtr = 12;
constexpr uint16_t kHinfo = 13;
constexpr uint16_t kMx = 15;
constexpr uint16_t kTxt = 16;
constexpr uint16_t kAaaa = 28;
constexpr uint16_t kSrv = 33;
constexpr uint16_t kDs = 43;

// Of a name each, as SkyDNS's keys would have it.
using Held = std::vector<std::pair<std::string, std::string>>;

ServiceTable tableOf(const Held& held) {
  std::map<std::string, ServicePtr> services;
  for (const auto& [name, value] : held) {
    const std::string key = name.starts_with('/') ? name : keyOf(dns::Name::parse(name).value().wire()).value();
    auto service = parseService(key, value);
    EXPECT_TRUE(service) << name << ": " << service.error().message;
    if (service) services[key] = std::make_shared<const Service>(std::move(*service));
  }
  std::vector<ServicePtr> list;
  for (auto& [key, service] : services) list.push_back(service);
  return {std::move(list), 7};
}

std::string dataOf(const Message& message, const Message::Record& record) {
  const std::vector<uint8_t> rdata = message.rdata(record);
  const auto nameAt = [&](size_t offset) {
    size_t pos = record.rdata + offset;
    return message.nameAt(pos);
  };
  switch (record.type) {
    case kA:
    case kAaaa:
      return IpAddress::fromBytes(rdata).toString();
    case kNs:
    case kCname:
    case kPtr:
      return nameAt(0);
    case kMx:
      return fmt::format("{} {}", dns::load16(rdata.data()), nameAt(2));
    case kSrv:
      return fmt::format("{} {} {} {}", dns::load16(rdata.data()), dns::load16(&rdata[2]), dns::load16(&rdata[4]),
                         nameAt(6));
    case kTxt: {
      std::string text;
      for (size_t at = 0; at < rdata.size(); at += rdata[at] + 1u) {
        text += text.empty() ? "" : "|";
        text.append(reinterpret_cast<const char*>(&rdata[at + 1]), rdata[at]);
      }
      return text;
    }
    default:
      return nameAt(0);
  }
}

struct Answered {
  Outcome outcome = Outcome::kFound;
  std::string head;  // "NOERROR aa"
  Texts answer;      // "name TTL TYPE data"
  Texts authority;
  Texts additional;
};

Answered lookUp(const ServiceTable& table, std::string_view zone, std::string_view name, uint16_t type,
                Aliases aliases = Aliases::kFollow, const ForeignAnswer* foreign = nullptr, size_t limit = 65535) {
  Message message(name, type, 4096);
  dns::Query query;
  EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
  Lookup lookup;
  const dns::Name origin = dns::Name::parse(zone).value();
  Answered answered;
  answered.outcome = lookup.run(table, origin, query, limit, aliases, foreign);
  if (answered.outcome == Outcome::kForeign) {
    answered.head = "asks for " + lookup.foreignName().toString();
    return answered;
  }
  message.setResponse(lookup.write(query, limit, 0));
  answered.head = dns::kRcodeNames.toString(message.rcode());
  for (const auto& [flag, text] : {std::pair(dns::kFlagAa, " aa"), std::pair(dns::kFlagTc, " tc")}) {
    if (message.flag(flag)) answered.head += text;
  }
  size_t index = 0;
  for (const Message::Record& record : message.records()) {
    auto& section = index < message.answers()                                   ? answered.answer
                    : index < size_t{message.answers()} + message.authorities() ? answered.authority
                                                                                : answered.additional;
    ++index;
    if (record.type == 41) continue;
    section.push_back(fmt::format("{} {} {} {}", record.owner, record.ttl, dns::kTypeNames.toString(record.type),
                                  dataOf(message, record)));
  }
  return answered;
}

struct Case {
  std::string name;
  uint16_t type;
  Texts answer;
  Texts additional = {};
  bool exists = true;
};

void expectAll(const ServiceTable& table, std::string_view zone, const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(fmt::format("{} {}", one.name, dns::kTypeNames.toString(one.type)));
    const Answered answered = lookUp(table, zone, one.name, one.type);
    EXPECT_EQ(answered.answer, one.answer);
    EXPECT_EQ(answered.additional, one.additional);
    EXPECT_EQ(answered.head, one.exists ? "NOERROR aa" : "NXDOMAIN aa");
    EXPECT_EQ(answered.outcome, one.exists ? Outcome::kFound : Outcome::kNoName);
    const Texts soa{fmt::format("{} 30 SOA ns.dns.{}", zone, zone)};
    EXPECT_EQ(answered.authority, one.answer.empty() ? soa : Texts{});
  }
}

const Held kCluster{
    {"a.web.east.sky.test.", R"({"host":"192.0.2.1","port":80})"},
    {"b.web.east.sky.test.", R"({"host":"192.0.2.2","port":80})"},
    {"c.web.east.sky.test.", R"({"host":"2001:db8::3","port":443})"},
    {"db.west.sky.test.", R"({"host":"192.0.2.9","port":5432,"ttl":60})"},
    {"old.west.sky.test.", R"({"host":"db.elsewhere","port":1})"},
    {"first.sky.test.", R"({"host":"out.elsewhere","priority":333,"port":9})"},
    {"empty.sky.test.", "{}"},
};

TEST(SkydnsLookup, AddressesOfANameAndOfAllBelow) {
  expectAll(tableOf(kCluster), "sky.test.",
            {{"a.web.east.sky.test.", kA, {"a.web.east.sky.test. 300 A 192.0.2.1"}},
             {"c.web.east.sky.test.", kAaaa, {"c.web.east.sky.test. 300 AAAA 2001:db8::3"}},
             {"web.east.sky.test.", kA, {"web.east.sky.test. 300 A 192.0.2.1", "web.east.sky.test. 300 A 192.0.2.2"}},
             {"east.sky.test.", kAaaa, {"east.sky.test. 300 AAAA 2001:db8::3"}},
             {"db.west.sky.test.", kA, {"db.west.sky.test. 60 A 192.0.2.9"}},
             {"db.west.sky.test.", kAaaa, {}},
             {"db.west.sky.test.", kTxt, {}},
             {"db.west.sky.test.", kHinfo, {}},
             {"empty.sky.test.", kA, {}},
             {"x.sky.test.", kA, {}, {}, false},
             {"x.sky.test.", kHinfo, {}, {}, false},
             {"x.db.west.sky.test.", kA, {}, {}, false},
             {"we.sky.test.", kA, {}, {}, false}});
}

TEST(SkydnsLookup, TheTtlOfASetIsTheLeast) {
  const auto table = tableOf({{"a.x.t.", R"({"host":"192.0.2.1","ttl":50})"}, {"b.x.t.", R"({"host":"192.0.2.2","ttl":20})"}});
  expectAll(table, "t.", {{"x.t.", kA, {"x.t. 20 A 192.0.2.1", "x.t. 20 A 192.0.2.2"}}});
}

TEST(SkydnsLookup, OneAddressOnceHoweverManyPorts) {
  const auto table = tableOf({{"http.x.t.", R"({"host":"192.0.2.1","port":80})"}, {"https.x.t.", R"({"host":"192.0.2.1","port":443})"}});
  expectAll(table, "t.",
            {{"x.t.", kA, {"x.t. 300 A 192.0.2.1"}},
             {"x.t.",
              kSrv,
              {"x.t. 300 SRV 10 50 80 http.x.t.", "x.t. 300 SRV 10 50 443 https.x.t."},
              {"http.x.t. 300 A 192.0.2.1", "https.x.t. 300 A 192.0.2.1"}}});
}

TEST(SkydnsLookup, WhatIsBelowHidesTheNamesOwnKey) {
  const auto table = tableOf({{"x.t.", R"({"host":"192.0.2.1"})"}, {"a.x.t.", R"({"host":"192.0.2.2"})"}});
  expectAll(table, "t.", {{"x.t.", kA, {"x.t. 300 A 192.0.2.2"}}});
}

// As in CoreDNS: what is asked for is in lower case, keys are not.
TEST(SkydnsLookup, AKeyWithUpperCaseIsFoundBelowANameAlone) {
  expectAll(tableOf({{"/t/x/A", R"({"host":"192.0.2.1"})"}}), "t.",
            {{"x.t.", kA, {"x.t. 300 A 192.0.2.1"}}, {"a.x.t.", kA, {}, {}, false}, {"A.x.t.", kA, {}, {}, false}});
}

TEST(SkydnsLookup, Servers) {
  expectAll(tableOf(kCluster), "sky.test.",
            {{"a.web.east.sky.test.",
              kSrv,
              {"a.web.east.sky.test. 300 SRV 10 100 80 a.web.east.sky.test."},
              {"a.web.east.sky.test. 300 A 192.0.2.1"}},
             {"east.sky.test.",
              kSrv,
              {"east.sky.test. 300 SRV 10 33 80 a.web.east.sky.test.", "east.sky.test. 300 SRV 10 33 80 b.web.east.sky.test.",
               "east.sky.test. 300 SRV 10 33 443 c.web.east.sky.test."},
              {"a.web.east.sky.test. 300 A 192.0.2.1", "b.web.east.sky.test. 300 A 192.0.2.2",
               "c.web.east.sky.test. 300 AAAA 2001:db8::3"}},
             {"first.sky.test.", kSrv, {"first.sky.test. 300 SRV 333 100 9 out.elsewhere."}},
             {"x.sky.test.", kSrv, {}, {}, false},
             {"empty.sky.test.", kSrv, {}}});
}

TEST(SkydnsLookup, WeightsAreSharesOfTheirPriority) {
  const auto table = tableOf({{"a.x.t.", R"({"host":"a.","weight":130})"},
                              {"b.x.t.", R"({"host":"b.","weight":80})"},
                              {"c.x.t.", R"({"host":"c.","weight":150})"},
                              {"d.x.t.", R"({"host":"d.","priority":30})"},
                              {"e.x.t.", R"({"host":"e.","priority":40,"weight":1})"},
                              {"f.x.t.", R"({"host":"f.","priority":40,"weight":60000})"},
                              {"g.x.t.", R"({"host":"g.","priority":50,"port":-1})"}});
  expectAll(table, "t.",
            {{"x.t.",
              kSrv,
              {"x.t. 300 SRV 10 36 0 a.", "x.t. 300 SRV 10 22 0 b.", "x.t. 300 SRV 10 41 0 c.", "x.t. 300 SRV 30 100 0 d.",
               "x.t. 300 SRV 40 1 0 e.", "x.t. 300 SRV 40 99 0 f."}}});
}

TEST(SkydnsLookup, EqualServersAreOneWithTheWeightOfAll) {
  const auto table = tableOf({{"a.x.t.", R"({"host":"out."})"}, {"b.x.t.", R"({"host":"out."})"}});
  expectAll(table, "t.", {{"*.x.t.", kSrv, {"*.x.t. 300 SRV 10 100 0 out."}}});
}

TEST(SkydnsLookup, TargetsWithoutTheirFirstLabels) {
  const auto table = tableOf({{"x.bar.t.", R"({"host":"192.0.2.1","port":80,"targetstrip":1})"},
                              {"y.bar.t.", R"({"host":"bar.other","port":443})"},
                              {"far.t.", R"({"host":"2001:db8::1","targetstrip":9})"},
                              {"two.t.", R"({"host":"a.b.other","targetstrip":2})"}});
  expectAll(table, "t.",
            {{"bar.t.", kA, {"bar.t. 300 A 192.0.2.1"}},
             {"bar.t.",
              kSrv,
              {"bar.t. 300 SRV 10 50 80 bar.t.", "bar.t. 300 SRV 10 50 443 bar.other."},
              {"bar.t. 300 A 192.0.2.1"}},
             {"far.t.", kSrv, {"far.t. 300 SRV 10 100 0 far.t."}, {"far.t. 300 AAAA 2001:db8::1"}},
             {"two.t.", kSrv, {"two.t. 300 SRV 10 100 0 other."}}});
}

TEST(SkydnsLookup, ServersWithNamesOfTheZoneHaveTheirAddresses) {
  const auto table = tableOf({{"s.t.", R"({"host":"both.t"})"},
                              {"a.both.t.", R"({"host":"192.0.2.1"})"},
                              {"b.both.t.", R"({"host":"2001:db8::1"})"},
                              {"r.t.", R"({"host":"c1.t"})"},
                              {"c1.t.", R"({"host":"c2.t"})"},
                              {"c2.t.", R"({"host":"both.t"})"},
                              {"none.t.", R"({"host":"missing.t"})"}});
  expectAll(table, "t.",
            {{"s.t.", kSrv, {"s.t. 300 SRV 10 100 0 both.t."}, {"both.t. 300 A 192.0.2.1", "both.t. 300 AAAA 2001:db8::1"}},
             {"r.t.",
              kSrv,
              {"r.t. 300 SRV 10 100 0 c1.t."},
              {"c1.t. 300 CNAME c2.t.", "c2.t. 300 CNAME both.t.", "both.t. 300 A 192.0.2.1", "both.t. 300 AAAA 2001:db8::1"}},
             {"none.t.", kSrv, {"none.t. 300 SRV 10 100 0 missing.t."}}});
}

TEST(SkydnsLookup, WildcardsOfTheQuery) {
  const Held held{{"a.web.prod.r1.t.", R"({"host":"192.0.2.1","port":80})"},
                  {"b.db.dev.r1.t.", R"({"host":"192.0.2.2"})"},
                  {"c.web.prod.r2.t.", R"({"host":"192.0.2.3"})"}};
  const Texts both{"a.web.prod.r1.t. 300 A 192.0.2.1", "c.web.prod.r2.t. 300 A 192.0.2.3"};
  expectAll(tableOf(held), "t.",
            {{"*.r1.t.", kA, {"*.r1.t. 300 A 192.0.2.2", "*.r1.t. 300 A 192.0.2.1"}},
             {"prod.*.t.",
              kSrv,
              {"prod.*.t. 300 SRV 10 50 80 a.web.prod.r1.t.", "prod.*.t. 300 SRV 10 50 0 c.web.prod.r2.t."},
              both},
             {"prod.any.t.",
              kSrv,
              {"prod.any.t. 300 SRV 10 50 80 a.web.prod.r1.t.", "prod.any.t. 300 SRV 10 50 0 c.web.prod.r2.t."},
              both},
             {"web.*.r1.t.", kA, {"web.*.r1.t. 300 A 192.0.2.1"}},
             {"*.*.dev.*.t.", kA, {"*.*.dev.*.t. 300 A 192.0.2.2"}},
             {"none.*.r1.t.", kA, {}},
             {"a.*.r3.t.", kA, {}, {}, false}});
}

TEST(SkydnsLookup, AliasesAreFollowedWithinTheZone) {
  const auto table = tableOf({{"a.t.", R"({"host":"b.t"})"},
                              {"b.t.", R"({"host":"c.t"})"},
                              {"c.t.", R"({"host":"192.0.2.1"})"},
                              {"dir.t.", R"({"host":"many.t"})"},
                              {"1.in.dir2.t.", R"({"host":"many.t"})"},
                              {"x.many.t.", R"({"host":"192.0.2.2"})"},
                              {"y.many.t.", R"({"host":"192.0.2.3"})"},
                              {"words.t.", R"({"host":"said.t"})"},
                              {"said.t.", R"({"text":"hello"})"},
                              {"no.t.", R"({"host":"missing.t"})"},
                              {"l1.loop.t.", R"({"host":"l2.loop.t"})"},
                              {"l2.loop.t.", R"({"host":"l1.loop.t"})"},
                              {"self.t.", R"({"host":"self.t"})"},
                              {"up.t.", R"({"host":"below.up.t"})"}});
  expectAll(table, "t.",
            {{"a.t.", kA, {"a.t. 300 CNAME b.t.", "b.t. 300 CNAME c.t.", "c.t. 300 A 192.0.2.1"}},
             {"a.t.", kAaaa, {}},
             {"dir.t.", kA, {"dir.t. 300 CNAME many.t.", "many.t. 300 A 192.0.2.2", "many.t. 300 A 192.0.2.3"}},
             {"in.dir2.t.", kA, {"in.dir2.t. 300 CNAME many.t.", "many.t. 300 A 192.0.2.2", "many.t. 300 A 192.0.2.3"}},
             {"words.t.", kTxt, {"words.t. 300 CNAME said.t.", "said.t. 300 TXT hello"}},
             {"no.t.", kA, {}},
             {"l1.loop.t.", kA, {}},
             {"loop.t.", kA, {}},
             {"self.t.", kA, {}},
             {"up.t.", kA, {}}});
}

TEST(SkydnsLookup, AliasesInARowAreBounded) {
  Held held{{"end.t.", R"({"host":"192.0.2.1"})"}};
  for (int i = 0; i < 9; ++i)
    held.emplace_back(fmt::format("c{}.t.", i), fmt::format(R"({{"host":"{}.t"}})", i == 8 ? "end" : fmt::format("c{}", i + 1)));
  const auto table = tableOf(held);
  EXPECT_EQ(lookUp(table, "t.", "c1.t.", kA).answer.size(), 9u);
  EXPECT_TRUE(lookUp(table, "t.", "c0.t.", kA).answer.empty());
}

// Ten aliases to the next name each: a hundred million ways.
TEST(SkydnsLookup, AliasesThatBranchAreBounded) {
  Held held;
  for (int level = 0; level < 9; ++level) {
    for (int i = 0; i < 10; ++i)
      held.emplace_back(fmt::format("{}.n{}.t.", i, level), fmt::format(R"({{"host":"n{}.t"}})", level + 1));
  }
  EXPECT_EQ(lookUp(tableOf(held), "t.", "n0.t.", kA).head, "NOERROR aa");
}

TEST(SkydnsLookup, ANameHasOneAlias) {
  const auto table = tableOf({{"1.x.t.", R"({"host":"none.t"})"},
                              {"2.x.t.", R"({"host":"two.t"})"},
                              {"3.x.t.", R"({"host":"three.t"})"},
                              {"two.t.", R"({"host":"192.0.2.2"})"},
                              {"three.t.", R"({"host":"192.0.2.3"})"},
                              {"1.mixed.t.", R"({"host":"two.t"})"},
                              {"2.mixed.t.", R"({"host":"192.0.2.9"})"},
                              {"s.t.", R"({"host":"x.t"})"}});
  expectAll(table, "t.",
            {{"x.t.", kA, {"x.t. 300 CNAME two.t.", "two.t. 300 A 192.0.2.2"}},
             {"mixed.t.", kA, {"mixed.t. 300 A 192.0.2.9"}},
             {"s.t.",
              kSrv,
              {"s.t. 300 SRV 10 100 0 x.t."},
              {"x.t. 300 CNAME two.t.", "two.t. 300 A 192.0.2.2", "three.t. 300 A 192.0.2.3"}}});
}

TEST(SkydnsLookup, AliasesOfTheNameItself) {
  const auto table = tableOf({{"a.t.", R"({"host":"b.t"})"},
                              {"x.dir.t.", R"({"host":"b.t"})"},
                              {"addr.t.", R"({"host":"192.0.2.1"})"},
                              {"said.t.", R"({"text":"x"})"}});
  expectAll(table, "t.",
            {{"a.t.", kCname, {"a.t. 300 CNAME b.t."}},
             {"dir.t.", kCname, {}},
             {"addr.t.", kCname, {}},
             {"said.t.", kCname, {}},
             {"x.t.", kCname, {}, {}, false}});
}

TEST(SkydnsLookup, AliasesThatLeadOut) {
  const auto table = tableOf({{"out.t.", R"({"host":"www.other","ttl":60})"},
                              {"in.t.", R"({"host":"out.t"})"},
                              {"1.two.t.", R"({"host":"www.other"})"},
                              {"2.two.t.", R"({"host":"here.t"})"},
                              {"here.t.", R"({"host":"192.0.2.1"})"}});
  EXPECT_EQ(lookUp(table, "t.", "out.t.", kA).head, "asks for www.other.");
  EXPECT_EQ(lookUp(table, "t.", "in.t.", kTxt).head, "asks for www.other.");
  EXPECT_EQ(lookUp(table, "t.", "two.t.", kA).answer, (Texts{"two.t. 300 CNAME here.t.", "here.t. 300 A 192.0.2.1"}));
  EXPECT_EQ(lookUp(table, "t.", "out.t.", kA, Aliases::kAlone).answer, Texts{"out.t. 60 CNAME www.other."});
  EXPECT_EQ(lookUp(table, "t.", "in.t.", kA, Aliases::kAlone).answer,
            (Texts{"in.t. 300 CNAME out.t.", "out.t. 60 CNAME www.other."}));
  EXPECT_TRUE(lookUp(table, "t.", "out.t.", kHinfo).answer.empty());

  UpstreamMessage response("www.other.", kA);
  response.cname("www.other.", "w.other.", 10).a("w.other.", 20, {192, 0, 2, 7});
  ForeignAnswer foreign{dns::Name::parse("www.other.").value(), response.bytes, 0};
  foreign.question_end = dns::kHeaderSize + foreign.name.size() + 4;
  EXPECT_EQ(lookUp(table, "t.", "in.t.", kA, Aliases::kFollow, &foreign).answer,
            (Texts{"in.t. 300 CNAME out.t.", "out.t. 60 CNAME www.other.", "www.other. 10 CNAME w.other.",
                   "w.other. 20 A 192.0.2.7"}));

  const UpstreamMessage nothing("www.other.", kA);
  foreign.message = nothing.bytes;
  const Answered denied = lookUp(table, "t.", "out.t.", kA, Aliases::kFollow, &foreign);
  EXPECT_TRUE(denied.answer.empty());
  EXPECT_EQ(denied.head, "NOERROR aa");
  EXPECT_EQ(denied.authority.size(), 1u);
}

TEST(SkydnsLookup, Texts) {
  const auto table = tableOf({{"1.x.t.", R"({"text":"abc"})"},
                              {"2.x.t.", R"({"text":"abc abc"})"},
                              {"3.x.t.", R"({"text":"abc"})"},
                              {"host.t.", R"({"host":"192.0.2.1","text":"of a host"})"},
                              {"long.t.", "{\"text\":\"" + std::string(600, 'x') + "\"}"}});
  const std::string part(255, 'x');
  expectAll(table, "t.",
            {{"1.x.t.", kTxt, {"1.x.t. 300 TXT abc"}},
             {"x.t.", kTxt, {"x.t. 300 TXT abc", "x.t. 300 TXT abc abc"}},
             {"x.t.", kA, {}},
             {"host.t.", kTxt, {"host.t. 300 TXT of a host"}},
             {"host.t.", kA, {"host.t. 300 A 192.0.2.1"}},
             {"long.t.", kTxt, {"long.t. 300 TXT " + part + "|" + part + "|" + std::string(90, 'x')}}});
}

TEST(SkydnsLookup, Mail) {
  const auto table = tableOf({{"a.mail.t.", R"({"host":"mx.t","priority":50,"mail":true})"},
                              {"b.mail.t.", R"({"host":"mx.other","priority":50,"mail":true})"},
                              {"a.mx.t.", R"({"host":"host.t","priority":30,"mail":true})"},
                              {"a.two.t.", R"({"host":"host.t","priority":20,"mail":true})"},
                              {"b.two.t.", R"({"host":"host.t","priority":30,"mail":true})"},
                              {"ip.t.", R"({"host":"192.0.2.5","mail":true})"},
                              {"host.t.", R"({"host":"192.0.2.1"})"}});
  expectAll(table, "t.",
            {{"a.mail.t.", kMx, {"a.mail.t. 300 MX 50 mx.t."}, {"mx.t. 300 CNAME host.t.", "host.t. 300 A 192.0.2.1"}},
             {"b.mail.t.", kMx, {"b.mail.t. 300 MX 50 mx.other."}},
             {"mail.t.",
              kMx,
              {"mail.t. 300 MX 50 mx.t.", "mail.t. 300 MX 50 mx.other."},
              {"mx.t. 300 CNAME host.t.", "host.t. 300 A 192.0.2.1"}},
             {"two.t.", kMx, {"two.t. 300 MX 20 host.t.", "two.t. 300 MX 30 host.t."}, {"host.t. 300 A 192.0.2.1"}},
             {"ip.t.", kMx, {"ip.t. 300 MX 10 ip.t."}, {"ip.t. 300 A 192.0.2.5"}},
             {"host.t.", kMx, {}},
             {"x.t.", kMx, {}, {}, false}});
}

TEST(SkydnsLookup, Groups) {
  const auto table = tableOf({{"a.one.t.", R"({"host":"192.0.2.1","group":"g1"})"},
                              {"b.sub.one.t.", R"({"host":"192.0.2.2","group":"g1"})"},
                              {"a.other.t.", R"({"host":"192.0.2.1","group":"g1"})"},
                              {"b.sub.other.t.", R"({"host":"192.0.2.2","group":"g2"})"},
                              {"a.none.t.", R"({"host":"192.0.2.1","group":"g1"})"},
                              {"b.sub.none.t.", R"({"host":"192.0.2.2"})"},
                              {"a.both.t.", R"({"host":"192.0.2.1","group":"g1"})"},
                              {"b.both.t.", R"({"host":"192.0.2.2","group":"g2"})"}});
  const auto addresses = [](const std::string& name, std::initializer_list<int> last) {
    Texts texts;
    for (const int each : last) texts.push_back(fmt::format("{} 300 A 192.0.2.{}", name, each));
    return texts;
  };
  expectAll(table, "t.",
            {{"one.t.", kA, addresses("one.t.", {1, 2})},
             {"other.t.", kA, addresses("other.t.", {1})},
             {"none.t.", kA, addresses("none.t.", {1, 2})},
             {"both.t.", kA, addresses("both.t.", {1, 2})},
             {"sub.other.t.", kA, addresses("sub.other.t.", {2})}});
}

TEST(SkydnsLookup, ReverseNames) {
  const auto table = tableOf({{"1.2.0.192.in-addr.arpa.", R"({"host":"one.example"})"},
                              {"2.2.0.192.in-addr.arpa.", R"({"host":"192.0.2.2"})"}});
  expectAll(table, "in-addr.arpa.",
            {{"1.2.0.192.in-addr.arpa.", kPtr, {"1.2.0.192.in-addr.arpa. 300 PTR one.example."}},
             {"2.2.0.192.in-addr.arpa.", kPtr, {}},
             {"2.0.192.in-addr.arpa.", kPtr, {}},
             {"3.2.0.192.in-addr.arpa.", kPtr, {}, {}, false}});
}

TEST(SkydnsLookup, TheZonesOwnName) {
  const auto table = tableOf({{"x.t.", R"({"host":"192.0.2.1"})"},
                              {"a.ns.dns.t.", R"({"host":"192.0.2.53"})"},
                              {"b.ns.dns.t.", R"({"host":"2001:db8::53"})"},
                              {"c.ns.dns.t.", R"({"host":"name.other"})"},
                              {"x.apex.", R"({"host":"192.0.2.1"})"},
                              {"1.apex.dns.apex.", R"({"host":"192.0.2.7"})"},
                              {"2.apex.dns.apex.", R"({"host":"2001:db8::7"})"},
                              {"/folder/", R"({"host":"192.0.2.8","ttl":60})"},
                              {"/folder/x1", R"({"host":"192.0.2.9"})"}});
  expectAll(table, "t.",
            {{"t.",
              kNs,
              {"t. 300 NS a.ns.dns.t.", "t. 300 NS b.ns.dns.t."},
              {"a.ns.dns.t. 300 A 192.0.2.53", "b.ns.dns.t. 300 AAAA 2001:db8::53"}},
             {"t.", kSoa, {"t. 30 SOA ns.dns.t."}},
             {"t.", kA, {"t. 300 A 192.0.2.53", "t. 300 A 192.0.2.1"}},
             {"t.", kHinfo, {}},
             {"ns.dns.t.", kA, {"ns.dns.t. 300 A 192.0.2.53"}},
             {"x.t.", kNs, {}},
             {"x.t.", kSoa, {}},
             {"y.t.", kNs, {}, {}, false}});
  expectAll(table, "apex.", {{"apex.", kA, {"apex. 300 A 192.0.2.7"}}, {"apex.", kAaaa, {"apex. 300 AAAA 2001:db8::7"}}});
  expectAll(table, "folder.", {{"folder.", kA, {"folder. 60 A 192.0.2.8", "folder. 60 A 192.0.2.9"}}});
  expectAll(table, "nothing.", {{"nothing.", kA, {}}, {"nothing.", kNs, {}}, {"nothing.", kSoa, {"nothing. 30 SOA ns.dns.nothing."}}});
  EXPECT_EQ(lookUp(table, "t.", "t.", kDs).outcome, Outcome::kParentSide);
}

TEST(SkydnsLookup, AnswersThatDoNotFit) {
  Held held;
  for (int i = 0; i < 100; ++i) held.emplace_back(fmt::format("{}.many.t.", i), fmt::format(R"({{"host":"192.0.2.{}"}})", i));
  const auto table = tableOf(held);
  const Answered small = lookUp(table, "t.", "many.t.", kA, Aliases::kFollow, nullptr, 512);
  EXPECT_EQ(small.head, "NOERROR aa tc");
  EXPECT_TRUE(small.answer.empty());
  EXPECT_EQ(lookUp(table, "t.", "many.t.", kA).answer.size(), 100u);
}

TEST(SkydnsLookup, MoreKeysThanAreLookedAt) {
  std::vector<ServicePtr> services;
  for (size_t i = 0; i < Lookup::kMostKeys + 10; ++i) {
    auto service = parseService(fmt::format("/t/x/{:06}", i), i == 5 ? R"({"host":"192.0.2.1"})" : "{}");
    services.push_back(std::make_shared<const Service>(std::move(*service)));
  }
  const ServiceTable table(std::move(services), 1);
  const Answered answered = lookUp(table, "t.", "x.t.", kA);
  EXPECT_EQ(answered.head, "NOERROR aa tc");
  EXPECT_EQ(answered.answer.size(), 1u);
  EXPECT_EQ(lookUp(table, "t.", "004099.x.t.", kHinfo).head, "NOERROR aa");
}

// Of `count` services below x.t., and of others.
ServiceTable tableOfMany(size_t count, const std::string& value, const Held& others = {}) {
  Held held = others;
  for (size_t i = 0; i < count; ++i) held.emplace_back(fmt::format("{:06}.x.t.", i), value);
  return tableOf(held);
}

TEST(SkydnsLookup, AsManyKeysAsAreLookedAt) {
  const auto table = tableOfMany(Lookup::kMostKeys, R"({"host":"192.0.2.1"})");
  EXPECT_EQ(lookUp(table, "t.", "x.t.", kA).head, "NOERROR aa") << "nothing is missing";
}

TEST(SkydnsLookup, AnAnswerThatLacksOnlyAddressesOfTargetsIsWhole) {
  const std::string value = R"({"host":"host.t","port":80})";
  const Held host{{"host.t.", R"({"host":"192.0.2.1"})"}};
  const Answered whole = lookUp(tableOfMany(Lookup::kMostKeys, value, host), "t.", "x.t.", kSrv);
  EXPECT_EQ(whole.head, "NOERROR aa");
  EXPECT_EQ(whole.answer.size(), 1u);
  EXPECT_TRUE(whole.additional.empty());
  EXPECT_EQ(lookUp(tableOfMany(Lookup::kMostKeys + 1, value, host), "t.", "x.t.", kSrv).head, "NOERROR aa tc");
  Held hosts;
  for (size_t i = 0; i < Lookup::kMostKeys; ++i) hosts.emplace_back(fmt::format("{}.host.t.", i), R"({"host":"192.0.2.1"})");
  const Answered many = lookUp(tableOfMany(2, value, hosts), "t.", "x.t.", kSrv);
  EXPECT_EQ(many.head, "NOERROR aa");
  EXPECT_EQ(many.additional, Texts{"host.t. 300 A 192.0.2.1"});
}

TEST(SkydnsLookup, ASmallResponseHasFewerKeysLookedAt) {
  const auto table = tableOfMany(700, R"({"host":"192.0.2.1"})");
  EXPECT_EQ(lookUp(table, "t.", "x.t.", kA, Aliases::kFollow, nullptr, 1232).head, "NOERROR aa tc");
  EXPECT_EQ(lookUp(table, "t.", "x.t.", kA, Aliases::kFollow, nullptr, 4096).head, "NOERROR aa");
}

TEST(SkydnsLookup, NamesThatNoKeyCanHave) {
  expectAll(tableOf(kCluster), "sky.test.", {{"a/b.sky.test.", kA, {}, {}, false}, {"a/b.sky.test.", kPtr, {}, {}, false}});
}

}  // namespace
}  // namespace idetcd::skydns
