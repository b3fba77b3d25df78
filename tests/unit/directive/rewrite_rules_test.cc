#include "directive/rewrite/rules.h"

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/query_fixture.h"
#include "support/upstream_message.h"

namespace idetcd::directive {
namespace {

constexpr uint16_t kTypeA = 1;
constexpr uint16_t kTypeSoa = 6;
constexpr uint16_t kTypeMx = 15;
constexpr uint16_t kTypeHinfo = 13;
constexpr uint16_t kTypeAny = 255;

std::vector<std::string> wordsOf(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<RewriteRule> rules(const std::vector<std::string>& lines) {
  std::vector<RewriteRule> made;
  for (const std::string& line : lines) {
    auto rule = parseRewriteRule(wordsOf(line));
    EXPECT_TRUE(rule) << line << ": " << (rule ? "" : rule.error().message);
    if (rule) made.push_back(std::move(*rule));
  }
  return made;
}

std::string refusal(const std::string& line) {
  const auto rule = parseRewriteRule(wordsOf(line));
  return rule ? "" : rule.error().message;
}

dns::Query parsed(Message& message) {
  dns::Query query;
  EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
  return query;
}

// The name, and the type if it is not A; "-": no rule applies; "none": it is no name.
std::string asked(const std::vector<std::string>& lines, const std::string& name, uint16_t type = kTypeA,
                  uint16_t rr_class = 1) {
  Message message(name, type, std::nullopt, rr_class);
  const dns::Query query = parsed(message);
  const auto question = applyRules(rules(lines), query);
  if (!question) return "-";
  if (!question->is_name) return "none";
  return question->name.toString() + (question->type == kTypeA ? "" : " " + dns::kTypeNames.toString(question->type));
}

TEST(RewriteRules, NamesByEachKind) {
  EXPECT_EQ(asked({"name a.example.org B.example.net"}, "a.example.org."), "b.example.net.");
  EXPECT_EQ(asked({"name exact a.example.org. b.example.net."}, "x.a.example.org."), "-");
  EXPECT_EQ(asked({"name prefix old- new-"}, "old-www.example.org."), "new-www.example.org.");
  EXPECT_EQ(asked({"name suffix .example.org .example.net"}, "www.example.org."), "www.example.net.");
  EXPECT_EQ(asked({"name suffix .example.org .example.net"}, "example.org."), "-");
  EXPECT_EQ(asked({"name substring east west"}, "east.far-east.example.org."), "west.far-west.example.org.");
  EXPECT_EQ(asked({R"(name regex (.*)-(us-west-1)\.example\.org {1}.service.{2}.consul)"}, "ftp-us-west-1.example.org."),
            "ftp.service.us-west-1.consul.");
  EXPECT_EQ(asked({R"(name regex ^(\w+)\.(\w+)\. {2}.{0}{1})"}, "a.b."), "b.a.b.a.");
}

TEST(RewriteRules, ARuleStopsUnlessItSaysContinue) {
  EXPECT_EQ(asked({"name a.test b.test", "name b.test c.test"}, "a.test."), "b.test.");
  EXPECT_EQ(asked({"continue name a.test b.test", "name b.test c.test"}, "a.test."), "c.test.");
  EXPECT_EQ(asked({"stop name x.test b.test", "name a.test c.test"}, "a.test."), "c.test.") << "one that does not apply";
  EXPECT_EQ(asked({"continue type ANY HINFO", "name a.test b.test"}, "a.test.", kTypeAny), "b.test. HINFO");
}

TEST(RewriteRules, TypesAndClasses) {
  EXPECT_EQ(asked({"type ANY HINFO"}, "a.test.", kTypeAny), "a.test. HINFO");
  EXPECT_EQ(asked({"type ANY HINFO"}, "a.test."), "-");
  EXPECT_EQ(asked({"class CH IN"}, "a.test.", kTypeA, 3), "a.test.");
  EXPECT_EQ(asked({"name a.test b.test"}, "a.test.", kTypeA, 3), "-") << "it is not IN afterwards";
}

TEST(RewriteRules, WhatBecomesNoNameIsNone) {
  EXPECT_EQ(asked({"name prefix a " + std::string(64, 'b')}, "a.test."), "none");
  EXPECT_EQ(asked({"name suffix .test ..test"}, "a.test."), "none");
  EXPECT_EQ(asked({"name substring a " + std::string(60, 'b') + "."}, "aaaaa.test."), "none");
}

TEST(RewriteRules, WhatIsWrongIsSaid) {
  EXPECT_NE(refusal("").find("no rule type"), std::string::npos);
  EXPECT_NE(refusal("nmae a b").find("write: one of name, type, class, ttl, rcode"), std::string::npos);
  EXPECT_NE(refusal("edns0 local set 0xffee abcd").find("edns0 rules are CoreDNS's"), std::string::npos);
  EXPECT_NE(refusal("cname exact a b").find("not supported"), std::string::npos);
  EXPECT_NE(refusal("answer name a b").find("must begin with a name rule"), std::string::npos);
  EXPECT_NE(refusal("name regex (a {1}").find("no regular expression"), std::string::npos);
  EXPECT_NE(refusal("name regex (a) {2}").find("more groups"), std::string::npos);
  EXPECT_NE(refusal("name regex " + std::string(2000, 'a') + " b").find("more than 1024 bytes"), std::string::npos);
  EXPECT_NE(refusal("name exact a b..c").find("no name"), std::string::npos);
  EXPECT_NE(refusal("class IN CH").find("IN only"), std::string::npos);
  for (const char* line : {"name a", "name wrong a b", "name exact a b c", "name a b answer auto x", "name exact a b answer name c",
                           "name regex a b answer name c d value e",
                           "type A", "type A NOTYPE", "type A AXFR", "type A OPT", "class CH", "ttl a", "ttl a x", "ttl a -",
                           "ttl a 9-3", "ttl a 1-2-3", "ttl exact a 5 6", "ttl a 4294967295", "rcode a NXDOMAIN",
                           "rcode a NXDOMAIN 24", "rcode wrong a NXDOMAIN NOERROR"}) {
    EXPECT_NE(refusal(line), "") << line;
  }
}

// A response to what the rules make of a question for `name`, and what the client gets.
struct Changed {
  Message message;
  bool is_served = false;

  Changed(const std::vector<std::string>& lines, const std::string& name, UpstreamMessage response)
      : message(name, kTypeA) {
    const dns::Query query = parsed(message);
    const auto question = applyRules(rules(lines), query);
    if (!question) return;
    const auto wire = dns::Name::parse(question->name.toString()).value();
    const dns::MessageView view{response.bytes, dns::kHeaderSize + wire.size() + 4};
    const auto rewritten = rewriteResponse(query, view, question->response);
    is_served = rewritten.packed != nullptr;
    message.setResponse(dns::writeRewritten(rewritten, query, 1232));
  }
};

std::string valueOf(const Message& message, const Message::Record& record, size_t skip = 0) {
  size_t pos = record.rdata + skip;
  return message.nameAt(pos);
}

TEST(RewriteResponse, AnExactNameIsTheClientsAgain) {
  UpstreamMessage upstream("b.test.", kTypeA);
  upstream.cname("b.test.", "www.b.test.").a("www.b.test.", 60, {192, 0, 2, 1});
  const Changed changed({"name a.example.org b.test"}, "a.example.org.", upstream);
  const auto records = changed.message.records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].owner, "a.example.org.");
  EXPECT_EQ(valueOf(changed.message, records[0]), "www.a.example.org.");
  EXPECT_EQ(records[1].owner, "www.a.example.org.");
  EXPECT_EQ(changed.message.rdata(records[1]), (std::vector<uint8_t>{192, 0, 2, 1}));
}

TEST(RewriteResponse, OfOtherKindsOnlyIfToldSo) {
  UpstreamMessage upstream("www.test.", kTypeA);
  upstream.a("www.test.", 60, {192, 0, 2, 1});
  EXPECT_EQ(Changed({"name suffix .example.org .test"}, "www.example.org.", upstream).message.records()[0].owner, "www.test.");
  EXPECT_EQ(Changed({"name suffix .example.org .test answer auto"}, "www.example.org.", upstream).message.records()[0].owner,
            "www.example.org.");
  EXPECT_EQ(Changed({"name prefix old. www. answer auto"}, "old.test.", upstream).message.records()[0].owner, "old.test.");
  EXPECT_EQ(Changed({R"(name regex (.*)\.example {1}.test answer name (.*)\.test {1}.example)"}, "www.example.", upstream)
                .message.records()[0]
                .owner,
            "www.example.");
}

TEST(RewriteResponse, TheWordAnswerNeedNotBeRepeated) {
  UpstreamMessage upstream("a.test.", kTypeA);
  upstream.cname("a.test.", "b.test.");
  const Changed changed({R"(name suffix .example .test answer name (.*)\.test {1}.example value (.*)\.test {1}.example)"},
                        "a.example.", upstream);
  const auto records = changed.message.records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].owner, "a.example.");
  EXPECT_EQ(valueOf(changed.message, records[0]), "b.example.");
}

TEST(RewriteResponse, NamesInDataByValue) {
  UpstreamMessage upstream("b.test.", kTypeA);
  std::vector<uint8_t> mx{0, 10};
  for (const uint8_t byte : UpstreamMessage::name("mail.b.test.")) mx.push_back(byte);
  upstream.record(UpstreamMessage::kAnswer, "b.test.", kTypeMx, 60, mx).soa("b.test.", 60, 30);
  const Changed changed({R"(name regex (.*)\.example {1}.test answer value (.*)b\.test {1}b.example)"}, "b.example.", upstream);
  const auto records = changed.message.records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].owner, "b.test.") << "owners stay";
  EXPECT_EQ(valueOf(changed.message, records[0], 2), "mail.b.example.");
  EXPECT_EQ(records[1].type, kTypeSoa);
  size_t pos = records[1].rdata;
  EXPECT_EQ(changed.message.nameAt(pos), "ns.b.example.");
  EXPECT_EQ(changed.message.nameAt(pos), "hostmaster.b.test.");
  EXPECT_EQ(records[1].rdata + records[1].rdata_size - pos, 20u) << "the numbers";
}

TEST(RewriteResponse, TheLastRuleIsUndoneFirst) {
  UpstreamMessage upstream("c.test.", kTypeA);
  upstream.a("c.test.", 60, {192, 0, 2, 1});
  const Changed changed({"continue name a.test b.test", "name b.test c.test"}, "a.test.", upstream);
  EXPECT_EQ(changed.message.records()[0].owner, "a.test.");
}

TEST(RewriteResponse, TtlsAndRcodes) {
  UpstreamMessage upstream("a.test.", kTypeA);
  upstream.a("a.test.", 60, {192, 0, 2, 1});
  const auto ttl = [&upstream](const std::string& range) {
    return Changed({"ttl a.test " + range}, "a.test.", upstream).message.records()[0].ttl;
  };
  EXPECT_EQ(ttl("15"), 15u);
  EXPECT_EQ(ttl("-30"), 30u);
  EXPECT_EQ(ttl("90-"), 90u);
  EXPECT_EQ(ttl("30-90"), 60u);
  EXPECT_FALSE(Changed({"ttl exact b.test 15"}, "a.test.", upstream).is_served) << "no rule applies";

  UpstreamMessage denial("a.test.", kTypeA, 0x8183);
  denial.soa("test.", 60, 30);
  EXPECT_EQ(Changed({"rcode suffix .test NXDOMAIN NOERROR"}, "a.test.", denial).message.rcode(), 0u);
  EXPECT_EQ(Changed({"rcode regex .* REFUSED NOERROR"}, "a.test.", denial).message.rcode(), 3u);
  EXPECT_EQ(Changed({"continue rcode a.test 3 2", "rcode a.test NXDOMAIN REFUSED"}, "a.test.", denial).message.rcode(), 5u);
}

TEST(RewriteResponse, ANameThatGetsTooLongIsAFailure) {
  UpstreamMessage upstream("b.", kTypeA);
  upstream.a("b.", 60, {192, 0, 2, 1});
  const Changed changed({"name regex ^a b answer name ^b " + std::string(64, 'x')}, "a.", upstream);
  EXPECT_FALSE(changed.is_served);
  EXPECT_EQ(changed.message.rcode(), 2u);
}

TEST(RewriteRules, HaveTypesOfAllKinds) {
  EXPECT_EQ(asked({"type TYPE65280 A"}, "a.test.", 65280), "a.test.");
  EXPECT_EQ(asked({"type HINFO ANY"}, "a.test.", kTypeHinfo), "a.test. ANY");
}

}  // namespace
}  // namespace idetcd::directive
