#include "net/local_addresses.h"

#include <bit>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <numeric>

#include "net/udp_socket.h"

namespace idetcd::net {

namespace {

// Calls visit(const ifaddrs&) for each address of an interface, of every family.
template <typename Visit>
Result<void> visitAll(Visit visit) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return fail("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr != nullptr) visit(*i);
  }
  return {};
}

// Calls visit(name, address, netmask) for each IP address of an interface; the netmask may be null.
template <typename Visit>
Result<void> visitAddresses(Visit visit) {
  return visitAll([&visit](const ifaddrs& one) {
    const auto address = SocketAddress::fromSockaddr(one.ifa_addr);
    if (address) visit(std::string_view(one.ifa_name), *address, one.ifa_netmask);
  });
}

uint8_t prefixLength(const IpAddress& ip, const sockaddr* netmask) {
  const auto mask = netmask != nullptr ? SocketAddress::fromSockaddr(netmask) : std::nullopt;
  if (!mask || mask->ip.family() != ip.family()) return static_cast<uint8_t>(8 * ip.size());
  const std::span bytes(mask->ip.data(), mask->ip.size());
  return std::accumulate(bytes.begin(), bytes.end(), uint8_t{0},
                         [](uint8_t bits, uint8_t byte) { return static_cast<uint8_t>(bits + std::popcount(byte)); });
}

// True too if there is no descriptor to find out: then the attempt to listen on IPv6 fails.
bool hostHasIpv6() {
  const auto bound = UdpSocket::bind({.ip = IpAddress::v6({}), .port = 0}, false);
  return bound || bound.error().code == ErrorCode::kNoResources;
}

}  // namespace

std::vector<SocketAddress> anyAddresses(uint16_t port) {
  std::vector<SocketAddress> addresses{{.ip = IpAddress::v4({}), .port = port}};
  if (hostHasIpv6()) addresses.push_back({.ip = IpAddress::v6({}), .port = port});
  return addresses;
}

bool overlap(const SocketAddress& a, const SocketAddress& b) {
  return a.port == b.port && a.ip.family() == b.ip.family() && a != b && (a.ip.isUnspecified() || b.ip.isUnspecified());
}

std::vector<SocketAddress> localAddresses() {
  std::vector<SocketAddress> addresses;
  visitAddresses(
      [&addresses](std::string_view, const SocketAddress& address, const sockaddr*) { addresses.push_back(address); });
  return addresses;
}

bool mayNameInterface(std::string_view text) {
  const auto is_foul = [](char c) { return c <= ' ' || c == '/' || c == ':' || c == 0x7f; };
  return !text.empty() && text.size() < IFNAMSIZ && std::none_of(text.begin(), text.end(), is_foul);
}

Result<std::vector<AssignedAddress>> assignedAddresses() {
  std::vector<AssignedAddress> addresses;
  const auto visited =
      visitAddresses([&addresses](std::string_view name, const SocketAddress& address, const sockaddr* netmask) {
        const std::string interface(name.substr(0, name.find(':')));  // behind it is the label of an address
        addresses.push_back({.ip = address.ip,
                             .interface = if_nametoindex(interface.c_str()),
                             .prefix_length = prefixLength(address.ip, netmask)});
      });
  if (!visited) return tl::unexpected(visited.error());
  return addresses;
}

Result<std::unordered_map<uint32_t, HardwareAddress>> hardwareAddresses() {
  std::unordered_map<uint32_t, HardwareAddress> addresses;
  const auto visited = visitAll([&addresses](const ifaddrs& one) {
    if (one.ifa_addr->sa_family != AF_PACKET) return;
    sockaddr_ll link;
    std::memcpy(&link, one.ifa_addr, sizeof(link));
    HardwareAddress& address = addresses[static_cast<uint32_t>(link.sll_ifindex)];
    if (link.sll_halen == address.size()) std::copy_n(link.sll_addr, address.size(), address.begin());
  });
  if (!visited) return tl::unexpected(visited.error());
  return addresses;
}

Result<std::vector<SocketAddress>> interfaceAddresses(std::string_view name) {
  std::vector<SocketAddress> addresses;
  const auto visited =
      visitAddresses([&addresses, name](std::string_view of, const SocketAddress& address, const sockaddr*) {
        if (of == name) addresses.push_back(address);
      });
  if (!visited) return tl::unexpected(visited.error());
  if (addresses.empty()) return fail(fmt::format("no interface {} with an address", name));
  return addresses;
}

}  // namespace idetcd::net
