#include "resolver/dns64.h"

#include <gtest/gtest.h>

namespace idetcd::resolver {
namespace {

IpAddress ip(std::string_view text) { return IpAddress::parse(text).value(); }

std::string embedded(std::string_view prefix, std::string_view v4) {
  const IpAddress address = ip(v4);
  return IpAddress::v6(Nat64Prefix::parse(prefix).value().embed({address.data(), address.size()})).toString();
}

std::string extracted(std::string_view prefix, std::string_view v6) {
  const auto v4 = Nat64Prefix::parse(prefix).value().extract(ip(v6));
  return v4 ? v4->toString() : "";
}

// RFC 6052 §2.4.
TEST(Nat64Prefix, TheExamplesOfTheRfcInBothDirections) {
  const std::pair<const char*, const char*> cases[] = {
      {"2001:db8::/32", "2001:db8:c000:221::"},
      {"2001:db8:100::/40", "2001:db8:1c0:2:21::"},
      {"2001:db8:122::/48", "2001:db8:122:c000:2:2100::"},
      {"2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"},
      {"2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"},
      {"2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"},
      {"64:ff9b::/96", "64:ff9b::192.0.2.33"},
  };
  for (const auto& [prefix, address] : cases) {
    EXPECT_EQ(embedded(prefix, "192.0.2.33"), ip(address).toString()) << prefix;
    EXPECT_EQ(extracted(prefix, address), "192.0.2.33") << prefix;
  }
}

TEST(Nat64Prefix, WhatIsNotOfThePrefixStandsForNothing) {
  EXPECT_EQ(extracted("64:ff9b::/96", "64:ff9b:0:1::192.0.2.33"), "");
  EXPECT_EQ(extracted("2001:db8:122:344::/64", "2001:db8:122:345:c0:2:2100::"), "");
  EXPECT_EQ(extracted("2001:db8:122:344::/64", "2001:db8:122:344:1c0:2:2100::"), "") << "bits 64 to 71";
  EXPECT_EQ(extracted("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100:1"), "192.0.2.33") << "with a suffix";
}

// RFC 6052 §3.1.
TEST(Nat64Prefix, TheWellKnownOneIsForAddressesOfTheWorld) {
  const auto other = Nat64Prefix::parse("2001:db8:64::/96").value();
  for (const char* v4 :
       {"10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "127.0.0.1", "169.254.0.1", "0.0.0.0", "224.0.0.1"}) {
    EXPECT_FALSE(Nat64Prefix().mayEmbed(ip(v4))) << v4;
    EXPECT_TRUE(other.mayEmbed(ip(v4))) << v4;
  }
  EXPECT_TRUE(Nat64Prefix().mayEmbed(ip("192.0.2.1")));
  EXPECT_TRUE(Nat64Prefix().mayEmbed(ip("192.0.0.170"))) << "ipv4only.arpa. (RFC 7050)";
}

TEST(Nat64Prefix, Text) {
  EXPECT_EQ(embedded("2001:db8:64::ffff/96", "192.0.2.1"), "2001:db8:64::c000:201")
      << "what is behind it is not looked at";
  for (const char* text : {"", "64:ff9b::", "64:ff9b::/95", "64:ff9b::/104", "64:ff9b::/128", "64:ff9b::/x",
                           "192.0.2.0/32", "a/96", "2001:db8:0:0:100::/96"}) {
    EXPECT_FALSE(Nat64Prefix::parse(text)) << text;
  }
}

}  // namespace
}  // namespace idetcd::resolver
