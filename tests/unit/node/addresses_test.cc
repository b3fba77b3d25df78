#include "node/addresses.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::node {
namespace {

using records::HostAddresses;

IpAddress ip(std::string_view text) { return IpAddress::parse(text).value(); }

NetworkInterface interface(std::string name, const std::vector<std::string>& addresses) {
  NetworkInterface made;
  made.name = std::move(name);
  made.up = true;
  for (const std::string& address : addresses) made.addresses.push_back(ip(address));
  return made;
}

NetworkInterface bridge(std::string name, const std::vector<std::string>& addresses) {
  NetworkInterface made = interface(std::move(name), addresses);
  made.is_virtual = true;
  return made;
}

NetworkInterface loopback() {
  NetworkInterface made = interface("lo", {"127.0.0.1", "::1"});
  made.loopback = true;
  made.is_virtual = true;
  return made;
}

HostAddresses choose(const NetworkView& view) { return selectNodeAddresses({}, view).value().addresses; }

TEST(SelectNodeAddresses, DefaultRoutesDecide) {
  NetworkView view;
  view.default_source_ipv4 = ip("192.0.2.7");
  view.default_source_ipv6 = ip("2001:db8::7");
  view.interfaces = {loopback(), bridge("docker0", {"172.17.0.1", "fd01::1"}), interface("eth1", {"198.51.100.1"}),
                     interface("eth0", {"192.0.2.7", "2001:db8::7", "fe80::7"})};
  EXPECT_EQ(choose(view), (HostAddresses{ip("192.0.2.7"), ip("2001:db8::7")}));
}

TEST(SelectNodeAddresses, ADefaultRouteOverAVirtualInterfaceIsTaken) {  // every container has one
  NetworkView view;
  view.default_source_ipv4 = ip("172.17.0.2");
  view.interfaces = {loopback(), bridge("eth0", {"172.17.0.2", "fd01::2"})};
  EXPECT_EQ(choose(view), (HostAddresses{ip("172.17.0.2"), ip("fd01::2")}));
}

TEST(SelectNodeAddresses, AFamilyWithoutDefaultRouteComesFromTheSameInterfaceFirst) {
  NetworkView view;
  view.default_source_ipv4 = ip("192.0.2.7");
  view.interfaces = {loopback(), bridge("docker0", {"172.17.0.1", "fd01::1"}), interface("eth1", {"fd02::1"}),
                     interface("eth0", {"192.0.2.7", "fe80::7", "fd00::7"})};
  EXPECT_EQ(choose(view), (HostAddresses{ip("192.0.2.7"), ip("fd00::7")}));
}

TEST(SelectNodeAddresses, NoBridgeAndNoLinkLocalForAMissingFamily) {
  NetworkView view;
  view.default_source_ipv4 = ip("192.0.2.7");
  view.default_source_ipv6 = ip("fe80::7");
  view.interfaces = {loopback(), bridge("docker0", {"172.17.0.1", "fd01::1"}),
                     interface("eth0", {"192.0.2.7", "fe80::7"})};
  EXPECT_EQ(choose(view), (HostAddresses{ip("192.0.2.7"), {}}));
}

TEST(SelectNodeAddresses, WithoutRoutesHardwareComesBeforeBridges) {
  NetworkView view;
  view.interfaces = {loopback(), bridge("docker0", {"172.17.0.1", "fd01::1"}),
                     interface("eth0", {"169.254.3.4", "fe80::7", "192.0.2.7", "192.0.2.8"})};
  EXPECT_EQ(choose(view), (HostAddresses{ip("192.0.2.7"), {}}));
}

TEST(SelectNodeAddresses, ABridgeIsBetterThanNothing) {
  NetworkView view;
  view.interfaces = {loopback(), bridge("br0", {"10.0.0.1"})};
  const NodeAddresses chosen = selectNodeAddresses({}, view).value();
  EXPECT_EQ(chosen.addresses, (HostAddresses{ip("10.0.0.1"), {}}));
  EXPECT_TRUE(chosen.warning.empty());
}

TEST(SelectNodeAddresses, AnInterfaceThatIsDownDoesNotCount) {
  NetworkView view;
  view.interfaces = {loopback(), interface("eth0", {"192.0.2.7"}), interface("eth1", {"192.0.2.8"})};
  view.interfaces[1].up = false;
  EXPECT_EQ(choose(view), (HostAddresses{ip("192.0.2.8"), {}}));
}

TEST(SelectNodeAddresses, AMachineAloneUsesLoopbackAndSaysSo) {
  NetworkView view;
  view.interfaces = {loopback(), interface("eth0", {"fe80::7"})};
  const NodeAddresses chosen = selectNodeAddresses({}, view).value();
  EXPECT_EQ(chosen.addresses, (HostAddresses{ip("127.0.0.1"), ip("::1")}));
  EXPECT_FALSE(chosen.warning.empty());
  EXPECT_EQ(choose({}), (HostAddresses{ip("127.0.0.1"), {}}));
}

TEST(SelectNodeAddresses, UnusableDefaultSourcesAreIgnored) {
  for (const std::string bad : {"127.0.0.1", "0.0.0.0", "169.254.1.1", "224.0.0.1"}) {
    NetworkView view;
    view.default_source_ipv4 = ip(bad);
    view.interfaces = {interface("eth0", {"192.0.2.7"})};
    EXPECT_EQ(choose(view), (HostAddresses{ip("192.0.2.7"), {}})) << bad;
  }
}

TEST(SelectNodeAddresses, ConfiguredAddressesOverride) {
  NetworkView view;
  view.default_source_ipv4 = ip("192.0.2.7");
  const auto select = [&](std::vector<std::string> texts) {
    AddressOptions options;
    for (const std::string& text : texts) options.addresses.push_back(ip(text));
    return selectNodeAddresses(options, view);
  };
  EXPECT_EQ(select({"198.51.100.1"}).value().addresses, (HostAddresses{ip("198.51.100.1"), {}}));
  EXPECT_EQ(select({"fd00::1", "198.51.100.1"}).value().addresses, (HostAddresses{ip("198.51.100.1"), ip("fd00::1")}));
  EXPECT_EQ(select({"127.0.0.2"}).value().addresses, (HostAddresses{ip("127.0.0.2"), {}}));
  EXPECT_FALSE(select({"198.51.100.1", "198.51.100.2"}));
  for (const std::string bad : {"169.254.1.1", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1"}) {
    EXPECT_FALSE(select({bad})) << bad;
  }
}

TEST(SelectNodeAddresses, AConfiguredInterfaceOverrides) {
  NetworkView view;
  view.default_source_ipv4 = ip("192.0.2.7");
  view.interfaces = {loopback(), interface("eth0", {"192.0.2.7"}),
                     bridge("vxlan0", {"fe80::1", "10.1.0.1", "10.1.0.2", "fd05::1"}), interface("eth2", {"fe80::2"})};
  const auto select = [&](std::string name) { return selectNodeAddresses({{}, std::move(name)}, view); };
  EXPECT_EQ(select("vxlan0").value().addresses, (HostAddresses{ip("10.1.0.1"), ip("fd05::1")}));
  EXPECT_EQ(select("lo").value().addresses, (HostAddresses{ip("127.0.0.1"), ip("::1")}));
  EXPECT_FALSE(select("eth2"));
  EXPECT_FALSE(select("eth9"));
  EXPECT_FALSE(selectNodeAddresses({{ip("10.0.0.1")}, "eth0"}, view));
}

TEST(ReadNetworkView, SeesThisMachine) {
  const NetworkView view = readNetworkView();
  bool loopback_seen = false;
  for (const NetworkInterface& interface : view.interfaces) {
    EXPECT_FALSE(interface.name.empty());
    loopback_seen |= interface.loopback;
  }
  EXPECT_TRUE(loopback_seen);
  const Result<NodeAddresses> chosen = selectNodeAddresses({}, view);
  ASSERT_TRUE(chosen);
  EXPECT_TRUE(chosen->addresses.ipv4 || chosen->addresses.ipv6);
}

TEST(SelectNodeAddresses, FurtherNetworksHaveTheirOwn) {
  NetworkView view;
  view.default_source_ipv4 = ip("192.0.2.7");
  view.interfaces = {loopback(), interface("eth0", {"192.0.2.7"}), interface("ib0", {"fe80::1", "10.1.0.1", "fd05::1"})};
  AddressOptions options;
  options.networks = {{.name = "fabric", .addresses = {}, .interface_name = "ib0"},
                      {.name = "storage", .addresses = {ip("10.2.0.1")}, .interface_name = ""},
                      {.name = "missing", .addresses = {}, .interface_name = "ib1"}};
  const NodeAddresses chosen = selectNodeAddresses(options, view).value();
  EXPECT_EQ(chosen.addresses.ipv4, ip("192.0.2.7")) << "as without them";
  ASSERT_EQ(chosen.addresses.networks.size(), 3u);
  EXPECT_EQ(chosen.addresses.networks[0].addresses, (HostAddresses{ip("10.1.0.1"), ip("fd05::1")}));
  EXPECT_EQ(chosen.addresses.networks[1].addresses, (HostAddresses{ip("10.2.0.1"), {}}));
  EXPECT_EQ(chosen.addresses.networks[2].addresses, HostAddresses{});
  EXPECT_EQ(chosen.warning, "");
  EXPECT_EQ(chosen.missing_networks, "no address in the network missing: there is no interface ib1");
  options.networks[1].addresses = {ip("fe80::1")};
  EXPECT_FALSE(selectNodeAddresses(options, view)) << "a mistake in the Corefile";
}

TEST(AddressOptions, AreFixedIfNothingDependsOnTheMachine) {
  AddressOptions options;
  EXPECT_FALSE(options.areFixed());
  options.addresses = {ip("192.0.2.7")};
  EXPECT_TRUE(options.areFixed());
  options.networks = {{.name = "storage", .addresses = {ip("10.2.0.1")}, .interface_name = ""}};
  EXPECT_TRUE(options.areFixed());
  options.networks.push_back({.name = "fabric", .addresses = {}, .interface_name = "ib0"});
  EXPECT_FALSE(options.areFixed());
}

}  // namespace
}  // namespace idetcd::node
