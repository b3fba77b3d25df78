#include "dns/name.h"

#include <random>

#include <gtest/gtest.h>

namespace idetcd::dns {
namespace {

std::optional<IpAddress> addressOf(std::string_view name) {
  return addressOfReverseName(Name::parse(name).value().wire());
}

TEST(ReverseName, LeadsThereAndBack) {
  for (const char* text : {"0.0.0.0", "192.0.2.1", "10.200.99.255", "::", "::1", "2001:db8::7", "fe80::ffff:1"}) {
    const IpAddress address = IpAddress::parse(text).value();
    EXPECT_EQ(addressOfReverseName(reverseName(address).wire()), address) << text;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::array<uint8_t, 16> octets;
    for (uint8_t& octet : octets) octet = static_cast<uint8_t>(random());
    const IpAddress v6 = IpAddress::v6(octets);
    const IpAddress v4 = IpAddress::fromBytes(std::span(octets).first(4));
    EXPECT_EQ(addressOfReverseName(reverseName(v6).wire()), v6);
    EXPECT_EQ(addressOfReverseName(reverseName(v4).wire()), v4);
  }
  EXPECT_EQ(addressOf("1.2.0.192.in-addr.arpa."), IpAddress::parse("192.0.2.1"));
}

TEST(ReverseName, OtherNamesHaveNoAddress) {
  const std::string zeros = "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.";
  ASSERT_EQ(addressOf("1." + zeros + "ip6.arpa."), IpAddress::parse("::1"));
  for (const std::string& name :
       {std::string("."), std::string("in-addr.arpa."), std::string("ip6.arpa."), std::string("2.0.192.in-addr.arpa."),
        std::string("5.1.2.0.192.in-addr.arpa."), std::string("256.2.0.192.in-addr.arpa."),
        std::string("01.2.0.192.in-addr.arpa."), std::string("1000.2.0.192.in-addr.arpa."),
        std::string("a.2.0.192.in-addr.arpa."), std::string("1.2.0.192.in-addr.arpa.org."),
        std::string("1.2.0.192\\007in-addr.arpa."), std::string("1.2.0.1\\007in-addr\\004arpa."), zeros + "ip6.arpa.",
        "1.0." + zeros + "ip6.arpa.", "g." + zeros + "ip6.arpa.", "1." + zeros + "ip6.int.",
        "1." + zeros.substr(4) + "10.0.ip6.arpa.", std::string("worker1.tf.local.")}) {
    EXPECT_EQ(addressOf(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace idetcd::dns
