#include "naming/published_addresses.h"

#include <gtest/gtest.h>

namespace idetcd::naming {
namespace {

records::MemberAddresses v4(const char* text) { return {{.ipv4 = IpAddress::parse(text), .ipv6 = {}}, {}}; }

TEST(PublishedAddresses, FollowThoseOfTheMachine) {
  PublishedAddresses addresses(v4("192.0.2.1"), {});
  EXPECT_FALSE(addresses.update(node::NodeAddresses{.addresses = v4("192.0.2.1"), .warning = "", .missing_networks = ""}));
  EXPECT_TRUE(addresses.update(node::NodeAddresses{.addresses = v4("192.0.2.2"), .warning = "", .missing_networks = ""}));
  EXPECT_EQ(addresses.get(), v4("192.0.2.2"));
}

TEST(PublishedAddresses, StayWhileTheMachineHasNone) {
  PublishedAddresses addresses(v4("192.0.2.1"), {});
  EXPECT_FALSE(addresses.update(node::NodeAddresses{.addresses = v4("127.0.0.1"), .warning = "only loopback", .missing_networks = ""}));
  EXPECT_FALSE(addresses.update(fail("no such interface")));
  EXPECT_EQ(addresses.get(), v4("192.0.2.1"));
  EXPECT_TRUE(addresses.update(node::NodeAddresses{.addresses = v4("192.0.2.3"), .warning = "", .missing_networks = ""}));
}

TEST(PublishedAddresses, ANetworkThatTheMachineIsWithoutKeepsItsOwn) {
  const auto found = [](const char* own, const char* fabric) {
    node::NodeAddresses made{.addresses = v4(own), .warning = "", .missing_networks = fabric ? "" : "no ib0"};
    made.addresses.networks = {{"fabric", fabric ? v4(fabric) : records::HostAddresses{}}};
    return made;
  };
  PublishedAddresses addresses(found("192.0.2.1", "10.0.0.1").addresses, {});
  EXPECT_FALSE(addresses.update(found("192.0.2.1", nullptr)));
  EXPECT_TRUE(addresses.update(found("192.0.2.2", nullptr))) << "the others are followed";
  EXPECT_EQ(addresses.get(), found("192.0.2.2", "10.0.0.1").addresses);
  EXPECT_TRUE(addresses.update(found("192.0.2.2", "10.0.0.2")));
  EXPECT_EQ(addresses.get(), found("192.0.2.2", "10.0.0.2").addresses);
}

}  // namespace
}  // namespace idetcd::naming
