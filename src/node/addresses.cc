#include "node/addresses.h"

#include <filesystem>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace idetcd::node {
namespace {

using Family = IpAddress::Family;
using records::HostAddresses;

bool isPublishable(const IpAddress& ip) {
  return !ip.isLinkLocal() && !ip.isLoopback() && !ip.isUnspecified() && !ip.isMulticast();
}

bool isEmpty(const HostAddresses& addresses) { return !addresses.ipv4 && !addresses.ipv6; }

std::optional<IpAddress>& slotOf(HostAddresses& addresses, Family family) {
  return family == Family::kV4 ? addresses.ipv4 : addresses.ipv6;
}

Result<HostAddresses> fromConfiguredAddresses(const std::vector<IpAddress>& configured) {
  HostAddresses chosen;
  for (const IpAddress& ip : configured) {
    // Loopback is allowed where it is configured.
    if (ip.isLinkLocal() || ip.isUnspecified() || ip.isMulticast()) {
      return fail(fmt::format("address {} cannot be a node's address", ip.toString()));
    }
    std::optional<IpAddress>& slot = slotOf(chosen, ip.family());
    if (slot) return fail(fmt::format("more than one IPv{} address", static_cast<int>(ip.family())));
    slot = ip;
  }
  return chosen;
}

Result<HostAddresses> fromConfiguredInterface(const std::string& name,
                                              const std::vector<NetworkInterface>& interfaces) {
  const NetworkInterface* found = nullptr;
  for (const NetworkInterface& candidate : interfaces) {
    if (candidate.name == name) found = &candidate;
  }
  if (found == nullptr) return fail(fmt::format("there is no interface {}", name));
  HostAddresses chosen;
  for (const IpAddress& ip : found->addresses) {
    std::optional<IpAddress>& slot = slotOf(chosen, ip.family());
    if (!slot && isPublishable(ip)) slot = ip;
  }
  if (found->loopback && isEmpty(chosen)) {
    for (const IpAddress& ip : found->addresses) {
      std::optional<IpAddress>& slot = slotOf(chosen, ip.family());
      if (!slot && ip.isLoopback()) slot = ip;
    }
  }
  if (isEmpty(chosen)) {
    return fail(fmt::format("interface {} has no address that could be a node's address", name));
  }
  return chosen;
}

const NetworkInterface* ownerOf(const IpAddress& ip, const std::vector<NetworkInterface>& interfaces) {
  for (const NetworkInterface& candidate : interfaces) {
    for (const IpAddress& own : candidate.addresses) {
      if (own == ip) return &candidate;
    }
  }
  return nullptr;
}

template <typename Accept>
std::optional<IpAddress> firstAddress(const std::vector<NetworkInterface>& interfaces, Family family, Accept accept) {
  for (const NetworkInterface& candidate : interfaces) {
    if (!candidate.up || candidate.loopback || !accept(candidate)) continue;
    for (const IpAddress& ip : candidate.addresses) {
      if (ip.family() == family && isPublishable(ip)) return ip;
    }
  }
  return std::nullopt;
}

// Each family by its default route; else from the interface of the other family, then from any hardware.
HostAddresses fromRoutesAndHardware(const NetworkView& view) {
  HostAddresses chosen;
  if (view.default_source_ipv4 && isPublishable(*view.default_source_ipv4)) chosen.ipv4 = view.default_source_ipv4;
  if (view.default_source_ipv6 && isPublishable(*view.default_source_ipv6)) chosen.ipv6 = view.default_source_ipv6;
  const HostAddresses routed = chosen;
  for (const Family family : {Family::kV4, Family::kV6}) {
    std::optional<IpAddress>& slot = slotOf(chosen, family);
    const std::optional<IpAddress>& other = family == Family::kV4 ? routed.ipv6 : routed.ipv4;
    const NetworkInterface* uplink = other ? ownerOf(*other, view.interfaces) : nullptr;
    if (!slot) slot = firstAddress(view.interfaces, family, [&](const NetworkInterface& i) { return &i == uplink; });
    if (!slot) slot = firstAddress(view.interfaces, family, [](const NetworkInterface& i) { return !i.is_virtual; });
  }
  return chosen;
}

HostAddresses fromVirtual(const NetworkView& view) {
  HostAddresses chosen;
  for (const Family family : {Family::kV4, Family::kV6}) {
    slotOf(chosen, family) = firstAddress(view.interfaces, family, [](const NetworkInterface&) { return true; });
  }
  return chosen;
}

HostAddresses fromLoopback(const NetworkView& view) {
  HostAddresses chosen;
  for (const NetworkInterface& candidate : view.interfaces) {
    for (const IpAddress& ip : candidate.addresses) {
      std::optional<IpAddress>& slot = slotOf(chosen, ip.family());
      if (candidate.loopback && !slot && ip.isLoopback()) slot = ip;
    }
  }
  if (!chosen.ipv4 && !chosen.ipv6) chosen.ipv4 = IpAddress::v4({127, 0, 0, 1});
  return chosen;
}

// connect(2) on a datagram socket only asks the routing table; nothing is sent. The far end is a root server: a global
// address that no network has a more specific route for, as a laboratory may have for the documentation prefixes.
std::optional<IpAddress> defaultSource(std::string_view far_end) {
  const SocketAddress target{*IpAddress::parse(far_end), 53, 0};
  sockaddr_storage storage{};
  const socklen_t length = target.toSockaddr(&storage);
  const int fd = socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  std::optional<IpAddress> source;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0) {
    sockaddr_storage local{};
    socklen_t local_length = sizeof local;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length) == 0) {
      source = IpAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&local));
    }
  }
  close(fd);
  return source;
}

// Where sysfs is hidden (some containers), the usual names decide.
bool isVirtualInterface(const std::string& name) {
  std::error_code error;
  const std::filesystem::path device = std::filesystem::canonical("/sys/class/net/" + name, error);
  if (!error) return device.string().find("/devices/virtual/") != std::string::npos;
  constexpr std::array<std::string_view, 10> kVirtualNames = {"docker", "br-",     "veth", "virbr", "cni",
                                                              "lxc",    "flannel", "cali", "tun",   "wg"};
  for (const std::string_view prefix : kVirtualNames) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

NetworkInterface& interfaceNamed(std::vector<NetworkInterface>& interfaces, const ifaddrs& entry) {
  for (NetworkInterface& known : interfaces) {
    if (known.name == entry.ifa_name) return known;
  }
  NetworkInterface& added = interfaces.emplace_back();
  added.name = entry.ifa_name;
  added.up = (entry.ifa_flags & IFF_UP) != 0;
  added.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  added.is_virtual = isVirtualInterface(added.name);
  return added;
}

std::vector<NetworkInterface> readInterfaces() {
  std::vector<NetworkInterface> interfaces;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    NetworkInterface& known = interfaceNamed(interfaces, *entry);
    if (entry->ifa_addr == nullptr) continue;
    if (std::optional<IpAddress> ip = IpAddress::fromSockaddr(entry->ifa_addr)) known.addresses.push_back(*ip);
  }
  return interfaces;
}

// Those of the node's name.
Result<HostAddresses> selectOwn(const AddressOptions& options, const NetworkView& view, std::string& warning) {
  if (!options.addresses.empty() && !options.interface_name.empty()) {
    return fail("both an address and an interface are given");
  }
  if (!options.addresses.empty()) return fromConfiguredAddresses(options.addresses);
  if (!options.interface_name.empty()) return fromConfiguredInterface(options.interface_name, view.interfaces);

  HostAddresses chosen = fromRoutesAndHardware(view);
  if (isEmpty(chosen)) chosen = fromVirtual(view);
  if (!isEmpty(chosen)) return chosen;
  warning = "this machine has no address but loopback: other machines cannot reach what its name resolves to";
  return fromLoopback(view);
}

}  // namespace

bool AddressOptions::areFixed() const {
  return !addresses.empty() && std::ranges::all_of(networks, &std::string::empty, &NetworkOptions::interface_name);
}

// A machine without one of its further networks is reached through the others.
Result<NodeAddresses> selectNodeAddresses(const AddressOptions& options, const NetworkView& view) {
  NodeAddresses chosen;
  const auto own = selectOwn(options, view, chosen.warning);
  if (!own) return tl::unexpected(own.error());
  chosen.addresses = {*own, {}};
  for (const NetworkOptions& network : options.networks) {
    const bool is_fixed = !network.addresses.empty();
    const auto found = is_fixed ? fromConfiguredAddresses(network.addresses)
                                : fromConfiguredInterface(network.interface_name, view.interfaces);
    if (!found && is_fixed) return tl::unexpected(found.error());
    chosen.addresses.networks.push_back({network.name, found.value_or(HostAddresses{})});
    if (found) continue;
    if (!chosen.missing_networks.empty()) chosen.missing_networks += "; ";
    chosen.missing_networks += fmt::format("no address in the network {}: {}", network.name, found.error().message);
  }
  return chosen;
}

NetworkView readNetworkView() {
  NetworkView view;
  view.default_source_ipv4 = defaultSource("198.41.0.4");
  view.default_source_ipv6 = defaultSource("2001:503:ba3e::2:30");
  view.interfaces = readInterfaces();
  return view;
}

}  // namespace idetcd::node
