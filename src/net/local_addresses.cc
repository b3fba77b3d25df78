#include "net/local_addresses.h"

#include <ifaddrs.h>
#include <memory>

#include <fmt/format.h>

namespace idetcd::net {

Result<std::vector<SocketAddress>> interfaceAddresses(std::string_view name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return fail("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<SocketAddress> addresses;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || name != i->ifa_name) continue;
    if (const auto address = SocketAddress::fromSockaddr(i->ifa_addr)) addresses.push_back(*address);
  }
  if (addresses.empty()) return fail(fmt::format("no interface {} with an address", name));
  return addresses;
}

}  // namespace idetcd::net
