#include "net/local_addresses.h"

#include <ifaddrs.h>
#include <memory>

#include <fmt/format.h>

#include "net/udp_socket.h"

namespace idetcd::net {

namespace {

// Of the interfaces whose names `wanted` takes.
template <typename Predicate>
Result<std::vector<SocketAddress>> addressesOf(Predicate&& wanted) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return fail("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<SocketAddress> addresses;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || !wanted(i->ifa_name)) continue;
    if (const auto address = SocketAddress::fromSockaddr(i->ifa_addr)) addresses.push_back(*address);
  }
  return addresses;
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
  return addressesOf([](std::string_view) { return true; }).value_or(std::vector<SocketAddress>());
}

Result<std::vector<SocketAddress>> interfaceAddresses(std::string_view name) {
  auto addresses = addressesOf([name](std::string_view of) { return of == name; });
  if (!addresses) return addresses;
  if (addresses->empty()) return fail(fmt::format("no interface {} with an address", name));
  return addresses;
}

}  // namespace idetcd::net
