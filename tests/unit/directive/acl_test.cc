#include "directive/acl/acl.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "support/query_fixture.h"

namespace idetcd::directive {
namespace {

using Action = Acl::Action;

constexpr uint16_t kA = 1;
constexpr uint16_t kTxt = 16;
constexpr uint16_t kAaaa = 28;

dns::Name name(std::string_view text) { return dns::Name::parse(text).value(); }
IpAddress address(std::string_view text) { return IpAddress::parse(text).value(); }

std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> all(1);
  for (const char c : line) {
    if (c == ' ') {
      all.emplace_back();
    } else {
      all.back() += c;
    }
  }
  return all;
}

Acl::RuleSet ruleSet(std::initializer_list<std::string_view> lines, std::string_view zone = ".") {
  Acl::RuleSet rules{.zones = {name(zone)}, .rules = {}};
  for (const std::string_view line : lines) {
    const auto rule = parseAclRule(words(line));
    EXPECT_TRUE(rule) << line << ": " << rule.error().message;
    rules.rules.push_back(*rule);
  }
  return rules;
}

dns::Query parsed(Message& message) {
  dns::Query query;
  EXPECT_EQ(dns::parseQuery(message.data(), message.size(), Message::kSeed, query), dns::ParseOutcome::kQuery);
  return query;
}

Action check(const Acl& acl, std::string_view source, uint16_t type = kA, std::string_view qname = "www.example.org.") {
  Message message(qname, type);
  const dns::Query query = parsed(message);
  return acl.judge(address(source), query.name(), query.qtype);
}

TEST(AclCheck, AllowsWhatNoRuleSpeaksOf) {
  EXPECT_EQ(check(Acl({}), "192.0.2.1"), Action::kAllow);
  const Acl acl({ruleSet({"block net 192.0.2.0/24"})});
  EXPECT_EQ(check(acl, "192.0.2.0"), Action::kBlock);
  EXPECT_EQ(check(acl, "192.0.2.255"), Action::kBlock);
  EXPECT_EQ(check(acl, "192.0.1.255"), Action::kAllow);
  EXPECT_EQ(check(acl, "192.0.3.0"), Action::kAllow);
  EXPECT_EQ(check(acl, "2001:db8::1"), Action::kAllow);
}

TEST(AclCheck, NoNetMeansEveryAddress) {
  const Acl acl({ruleSet({"drop"})});
  for (const char* source : {"0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}) {
    EXPECT_EQ(check(acl, source), Action::kDrop) << source;
  }
}

TEST(AclCheck, TheFirstRuleThatMatchesDecidesNotTheLongestPrefix) {
  const Acl acl(
      {ruleSet({"allow net 10.1.0.0/16", "block net 10.0.0.0/8", "filter net 10.2.3.4", "drop net 0.0.0.0/0"})});
  EXPECT_EQ(check(acl, "10.1.2.3"), Action::kAllow);
  EXPECT_EQ(check(acl, "10.2.3.4"), Action::kBlock) << "the wider net comes first in the file";
  EXPECT_EQ(check(acl, "11.0.0.0"), Action::kDrop);
}

TEST(AclCheck, TypesNarrowARule) {
  const Acl acl({ruleSet({"filter type TXT AAAA net 10.0.0.0/8", "allow type TYPE16", "block type A"})});
  EXPECT_EQ(check(acl, "10.0.0.1", kTxt), Action::kFilter);
  EXPECT_EQ(check(acl, "10.0.0.1", kAaaa), Action::kFilter);
  EXPECT_EQ(check(acl, "10.0.0.1", kA), Action::kBlock);
  EXPECT_EQ(check(acl, "11.0.0.1", kTxt), Action::kAllow);
  EXPECT_EQ(check(acl, "11.0.0.1", kA), Action::kBlock);
  EXPECT_EQ(check(acl, "11.0.0.1", 65280), Action::kAllow);
}

TEST(AclCheck, ZonesNarrowARuleSet) {
  const Acl acl({ruleSet({"allow net 10.0.0.1"}, "a.example."), ruleSet({"block"}, "example."),
                 ruleSet({"drop net 10.0.0.2"}, "a.example.")});
  EXPECT_EQ(check(acl, "10.0.0.1", kA, "x.A.example."), Action::kAllow) << "allow ends the search";
  EXPECT_EQ(check(acl, "10.0.0.1", kA, "b.example."), Action::kBlock);
  EXPECT_EQ(check(acl, "10.0.0.2", kA, "a.example."), Action::kBlock) << "the first rule set that matches";
  EXPECT_EQ(check(acl, "10.0.0.1", kA, "example.org."), Action::kAllow);
  EXPECT_EQ(check(acl, "10.0.0.1", kA, "aexample."), Action::kAllow);
}

TEST(AclCheck, MappedAddressesAreIpv4) {
  const Acl acl({ruleSet({"block net 192.0.2.0/24 ::ffff:198.51.100.0/120", "drop net ::/0"})});
  EXPECT_EQ(check(acl, "::ffff:192.0.2.7"), Action::kBlock);
  EXPECT_EQ(check(acl, "198.51.100.7"), Action::kBlock);
  EXPECT_EQ(check(acl, "203.0.113.1"), Action::kAllow) << "::/0 is every IPv6 address, no IPv4 one";
  EXPECT_EQ(check(acl, "::1"), Action::kDrop);
}

TEST(AclCheck, HoldsAtTheEdgesOfTheAddressSpace) {
  const Acl acl({ruleSet({"block net 0.0.0.0 255.255.255.255 :: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                          "filter net 2001:db8:0:0:ffff:ffff:ffff:ffff/128", "drop net 2001:db8::/64"})});
  for (const char* source : {"0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}) {
    EXPECT_EQ(check(acl, source), Action::kBlock) << source;
  }
  for (const char* source : {"0.0.0.1", "255.255.255.254", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"}) {
    EXPECT_EQ(check(acl, source), Action::kAllow) << source;
  }
  EXPECT_EQ(check(acl, "2001:db8::ffff:ffff:ffff:ffff"), Action::kFilter);
  EXPECT_EQ(check(acl, "2001:db8::ffff:ffff:ffff:fffe"), Action::kDrop);
  EXPECT_EQ(check(acl, "2001:db8:0:1::"), Action::kAllow) << "the carry into the upper half";
}

// The action of the rules, read one by one.
Action naive(const Acl::RuleSet& rules, const IpAddress& source, uint16_t type) {
  for (const Acl::Rule& rule : rules.rules) {
    const bool typed = rule.types.empty() || std::find(rule.types.begin(), rule.types.end(), type) != rule.types.end();
    const auto holds = [&source](const Acl::Network& network) {
      if (network.address.family() != source.family()) return false;
      for (unsigned bit = 0; bit < network.prefix_length; ++bit) {
        const unsigned mask = 0x80u >> bit % 8;
        if ((network.address.data()[bit / 8] & mask) != (source.data()[bit / 8] & mask)) return false;
      }
      return true;
    };
    if (typed && (rule.networks.empty() || std::any_of(rule.networks.begin(), rule.networks.end(), holds))) {
      return rule.action;
    }
  }
  return Action::kAllow;
}

class RandomAddresses {
 public:
  // Few distinct bytes, so that networks nest and addresses hit.
  IpAddress next(bool v6) {
    std::array<uint8_t, 16> bytes{};
    for (uint8_t& byte : bytes) byte = std::array<uint8_t, 4>{0, 0xff, 0x80, 0x01}[random_() % 4];
    bytes[0] = 0x20;
    return v6 ? IpAddress::v6(bytes) : IpAddress::v4({bytes[0], bytes[1], bytes[2], bytes[3]});
  }
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

 private:
  std::mt19937 random_{7};
};

TEST(AclCheck, AgreesWithReadingTheRulesOneByOne) {
  RandomAddresses random;
  size_t decided = 0;
  for (int round = 0; round < 60; ++round) {
    Acl::RuleSet rules{.zones = {dns::Name{}}, .rules = {}};
    const uint32_t nets = round < 50 ? 4 : 500;
    for (uint32_t i = 0, count = 1 + random.below(12); i < count; ++i) {
      Acl::Rule rule{.action = static_cast<Action>(random.below(4)), .types = {}, .networks = {}};
      for (uint32_t n = random.below(3); n > 0; --n) rule.types.push_back(static_cast<uint16_t>(1 + random.below(4)));
      for (uint32_t n = 1 + random.below(nets); n > 0; --n) {
        const bool v6 = random.below(2) != 0;
        rule.networks.push_back({random.next(v6), static_cast<uint8_t>(random.below(v6 ? 129 : 33))});
      }
      if (random.below(20) == 0) rule.networks.clear();
      rules.rules.push_back(rule);
    }
    const Acl acl({rules});
    for (int i = 0; i < 400; ++i) {
      const IpAddress source = random.next(random.below(2) != 0);
      const auto type = static_cast<uint16_t>(1 + random.below(6));
      Message message("x.", type);
      const Action expected = naive(rules, source, type);
      decided += expected != Action::kAllow;
      const dns::Query query = parsed(message);
      ASSERT_EQ(acl.judge(source, query.name(), query.qtype), expected) << source.toString() << " type " << type;
    }
  }
  EXPECT_GT(decided, 1000u);
}

TEST(AclCheck, ThousandsOfNetsAreNotReadOneByOne) {
  Acl::RuleSet rules{.zones = {dns::Name{}}, .rules = {{.action = Action::kBlock, .types = {}, .networks = {}}}};
  for (uint32_t i = 0; i < 60000; ++i) {
    const auto byte = [i](unsigned shift) { return static_cast<uint8_t>(i >> shift); };
    rules.rules[0].networks.push_back({IpAddress::v4({10, byte(8), byte(0), 0}), 25});
  }
  const Acl acl({rules});
  for (int i = 0; i < 200000; ++i) {
    ASSERT_EQ(check(acl, i % 2 == 0 ? "10.7.9.127" : "10.7.9.128"), i % 2 == 0 ? Action::kBlock : Action::kAllow);
  }
}

TEST(AclAnswer, TellsTheClient) {
  const struct {
    Action action;
    resolve::QueryOutcome::Kind kind;
    uint16_t rcode;
    uint16_t ede;
  } cases[] = {{Action::kAllow, resolve::QueryOutcome::Kind::kNext, 0, 0},
               {Action::kBlock, resolve::QueryOutcome::Kind::kAnswer, 5, 15},
               {Action::kFilter, resolve::QueryOutcome::Kind::kAnswer, 0, 17},
               {Action::kDrop, resolve::QueryOutcome::Kind::kDrop, 0, 0}};
  for (const auto& c : cases) {
    Message message("www.example.org.", kA, 1232);
    const resolve::QueryOutcome outcome = resolve::Gate::answer(c.action, parsed(message), 1232, dns::kFlagRa);
    ASSERT_EQ(outcome.kind, c.kind);
    if (outcome.kind != resolve::QueryOutcome::Kind::kAnswer) continue;
    message.setResponse(outcome.size);
    EXPECT_EQ(message.rcode(), c.rcode);
    EXPECT_TRUE(message.flag(dns::kFlagRa));
    EXPECT_FALSE(message.flag(dns::kFlagAa));
    EXPECT_EQ(message.answers() + message.authorities(), 0);
    ASSERT_EQ(message.additionals(), 1);
    EXPECT_EQ(dns::load16(message.rdata(message.records()[0]).data() + 4), c.ede);
  }
}

TEST(AclCheck, AClientWithoutAnAddressIsBlocked) {
  const Acl acl({ruleSet({"drop net 127.0.0.0/8"})});
  EXPECT_EQ(acl.judge(std::nullopt, dns::Name().wire(), kA), Action::kBlock);
}

TEST(AclCheck, WhatHasNoTypeIsJudgedByRulesWithoutTypes) {
  const Acl acl({ruleSet({"allow type A net 192.0.2.0/24", "drop net 192.0.2.0/24", "block type TXT"})});
  const auto check_untyped = [&acl](std::string_view source) {
    return acl.judge(address(source), dns::Name().wire(), std::nullopt);
  };
  EXPECT_EQ(check_untyped("192.0.2.1"), Action::kDrop);
  EXPECT_EQ(check_untyped("192.0.3.1"), Action::kAllow);
}

TEST(AclParser, ReadsNetworks) {
  const struct {
    const char* text;
    const char* address;  // null: refused
    int prefix_length;
  } cases[] = {
      {"10.0.0.0/8", "10.0.0.0", 8},
      {"10.1.2.3/8", "10.1.2.3", 8},
      {"10.0.0.1", "10.0.0.1", 32},
      {"0.0.0.0/0", "0.0.0.0", 0},
      {"2001:db8::/32", "2001:db8::", 32},
      {"::1", "::1", 128},
      {"::ffff:10.0.0.0/104", "10.0.0.0", 8},
      {"::ffff:0:0/95", "::ffff:0:0", 95},
      {"10.0.0.0/33", nullptr, 0},
      {"::/129", nullptr, 0},
      {"::/257", nullptr, 0},
      {"10.0.0.0/", nullptr, 0},
      {"10.0.0.0/8/8", nullptr, 0},
      {"10.0.0.0/-1", nullptr, 0},
      {"10.0.0.0/+8", nullptr, 0},
      {"10.0.0.0/8x", nullptr, 0},
      {"10.0.0/8", nullptr, 0},
      {"/8", nullptr, 0},
      {"", nullptr, 0},
      {"example.org", nullptr, 0},
      {"fe80::1%eth0", nullptr, 0},
  };
  for (const auto& c : cases) {
    const auto network = IpNetwork::parse(c.text);
    ASSERT_EQ(network.has_value(), c.address != nullptr) << c.text;
    if (!network) continue;
    EXPECT_EQ(network->address, address(c.address)) << c.text;
    EXPECT_EQ(network->prefix_length, c.prefix_length) << c.text;
  }
  EXPECT_EQ(IpNetwork::parse("10.0.0.0/33").error().message, "illegal CIDR notation '10.0.0.0/33'");
}

TEST(AclParser, ReadsRules) {
  const auto rule = parseAclRule(words("BLOCK type a TXT net 10.0.0.0/8 type HTTPS net ::1"));
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_EQ(rule->action, Action::kBlock);
  EXPECT_EQ(rule->types, (std::vector<uint16_t>{1, 16, 65}));
  EXPECT_EQ(rule->networks.size(), 2u);
  const auto all = parseAclRule(words("allow type A * net 10.0.0.0/8 *"));
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->types.empty() && all->networks.empty());
  EXPECT_EQ(parseAclRule(words("filter type TYPE65280"))->types, (std::vector<uint16_t>{65280}));
}

TEST(AclParser, RefusesWhatIsNoRule) {
  const struct {
    const char* line;
    const char* error;
  } cases[] = {
      {"deny net 10.0.0.0/8", "unexpected token 'deny'; expect 'allow', 'block', 'filter' or 'drop'"},
      {"", "unexpected token ''; expect 'allow', 'block', 'filter' or 'drop'"},
      {"block 10.0.0.0/8", "unexpected token '10.0.0.0/8'; expect 'type | net'"},
      {"block file nets", "unexpected token 'file'; expect 'type | net'"},
      {"block type", "no token specified in 'type' section"},
      {"block type net 10.0.0.0/8", "no token specified in 'type' section"},
      {"block type A net", "no token specified in 'net' section"},
      {"block type BOGUS", "unexpected token 'BOGUS'; expect legal QTYPE"},
      {"block type TYPE65536", "unexpected token 'TYPE65536'; expect legal QTYPE"},
      {"block type TYPEx", "unexpected token 'TYPEx'; expect legal QTYPE"},
      {"block net 10.0.0.0/64", "illegal CIDR notation '10.0.0.0/64'"},
  };
  for (const auto& c : cases) {
    const auto rule = parseAclRule(words(c.line));
    ASSERT_FALSE(rule) << c.line;
    EXPECT_EQ(rule.error().message, c.error);
  }
  EXPECT_FALSE(parseAclRule({}));
}

}  // namespace
}  // namespace idetcd::directive
