#include "net/local_addresses.h"

#include <algorithm>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <string>

#include <fmt/format.h>

#include "net/udp_socket.h"

namespace idetcd::net {

namespace {

// Calls visit(name, address) for each address of an interface.
template <typename Visit>
Result<void> visitAddresses(Visit visit) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return fail("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    if (const auto address = SocketAddress::fromSockaddr(i->ifa_addr)) visit(std::string_view(i->ifa_name), *address);
  }
  return {};
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
  visitAddresses([&addresses](std::string_view, const SocketAddress& address) { addresses.push_back(address); });
  return addresses;
}

bool mayNameInterface(std::string_view text) {
  const auto is_foul = [](char c) { return c <= ' ' || c == '/' || c == ':' || c == 0x7f; };
  return !text.empty() && text.size() < IFNAMSIZ && std::none_of(text.begin(), text.end(), is_foul);
}

std::vector<AssignedAddress> assignedAddresses() {
  std::vector<AssignedAddress> addresses;
  visitAddresses([&addresses](std::string_view name, const SocketAddress& address) {
    const std::string interface(name.substr(0, name.find(':')));  // behind it is the label of an address
    addresses.push_back({.ip = address.ip, .interface = if_nametoindex(interface.c_str())});
  });
  return addresses;
}

Result<std::vector<SocketAddress>> interfaceAddresses(std::string_view name) {
  std::vector<SocketAddress> addresses;
  const auto visited = visitAddresses([&addresses, name](std::string_view of, const SocketAddress& address) {
    if (of == name) addresses.push_back(address);
  });
  if (!visited) return tl::unexpected(visited.error());
  if (addresses.empty()) return fail(fmt::format("no interface {} with an address", name));
  return addresses;
}

}  // namespace idetcd::net
