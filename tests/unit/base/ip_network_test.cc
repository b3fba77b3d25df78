#include "base/ip_address.h"

#include <gtest/gtest.h>

namespace idetcd {
namespace {

bool holds(const char* network, const char* address) {
  return IpNetwork::parse(network).value().contains(IpAddress::parse(address).value());
}

TEST(IpNetwork, ContainsWhatSharesThePrefix) {
  EXPECT_TRUE(holds("192.0.2.0/24", "192.0.2.255") && !holds("192.0.2.0/24", "192.0.3.0"));
  EXPECT_TRUE(holds("192.0.2.77/31", "192.0.2.76") && !holds("192.0.2.77/31", "192.0.2.78"));
  EXPECT_TRUE(holds("192.0.2.1", "192.0.2.1") && !holds("192.0.2.1", "192.0.2.0"));
  EXPECT_TRUE(holds("0.0.0.0/0", "255.255.255.255") && !holds("0.0.0.0/0", "::1"));
  EXPECT_TRUE(holds("2001:db8::/33", "2001:db8:7fff::1") && !holds("2001:db8::/33", "2001:db8:8000::"));
  EXPECT_TRUE(holds("::/0", "2001:db8::1") && !holds("::/0", "192.0.2.1"));
}

TEST(IpNetwork, AMappedAddressIsTheIpv4Address) {
  EXPECT_TRUE(holds("192.0.2.0/24", "::ffff:192.0.2.1") && holds("::ffff:192.0.2.0/120", "192.0.2.1"));
  EXPECT_FALSE(holds("::ffff:192.0.2.0/120", "192.0.3.1"));
}

TEST(IpNetwork, WhatIsNone) {
  for (const char* text : {"", "/8", "192.0.2.0/", "192.0.2.0/33", "2001:db8::/129", "192.0.2.0/-1", "invalid"}) {
    EXPECT_FALSE(IpNetwork::parse(text)) << text;
  }
}

}  // namespace
}  // namespace idetcd
