#include "naming/published_addresses.h"

#include <gtest/gtest.h>

namespace idetcd::naming {
namespace {

records::HostAddresses v4(const char* text) { return {.ipv4 = IpAddress::parse(text), .ipv6 = {}}; }

TEST(PublishedAddresses, FollowThoseOfTheMachine) {
  PublishedAddresses addresses(v4("192.0.2.1"), {});
  EXPECT_FALSE(addresses.update(node::NodeAddresses{.addresses = v4("192.0.2.1"), .warning = ""}));
  EXPECT_TRUE(addresses.update(node::NodeAddresses{.addresses = v4("192.0.2.2"), .warning = ""}));
  EXPECT_EQ(addresses.get(), v4("192.0.2.2"));
}

TEST(PublishedAddresses, StayWhileTheMachineHasNone) {
  PublishedAddresses addresses(v4("192.0.2.1"), {});
  EXPECT_FALSE(addresses.update(node::NodeAddresses{.addresses = v4("127.0.0.1"), .warning = "only loopback"}));
  EXPECT_FALSE(addresses.update(fail("no such interface")));
  EXPECT_EQ(addresses.get(), v4("192.0.2.1"));
  EXPECT_TRUE(addresses.update(node::NodeAddresses{.addresses = v4("192.0.2.3"), .warning = ""}));
}

}  // namespace
}  // namespace idetcd::naming
