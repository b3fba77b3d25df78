#include "directive/xdp/listener_plan.h"

#include <arpa/inet.h>

#include "kernel/answer_feed.h"

namespace idetcd::directive {

namespace {

using Zone = resolve::Router::Zone;

dns::Name nameOf(std::string_view text) { return dns::Name::parse(text).value(); }

bool isStrictlyWithin(const dns::Name& name, const dns::Name& zone) { return name.isWithin(zone) && !(name == zone); }

// The block of the longest zone for `name`. Null: none.
const Zone* routeOf(const std::vector<Zone>& zones, const dns::Name& name) {
  const Zone* longest = nullptr;
  for (const Zone& zone : zones) {
    if (name.isWithin(zone.name) && (longest == nullptr || zone.name.size() > longest->name.size())) longest = &zone;
  }
  return longest;
}

bool isDivided(const std::vector<Zone>& zones, const dns::Name& zone) {
  return std::any_of(zones.begin(), zones.end(),
                     [&zone](const Zone& other) { return isStrictlyWithin(other.name, zone); });
}

bool mayAnswer(const Zone& route) {
  const resolve::Chain& chain = *route.chain;
  return chain.parts.in_kernel && chain.isDirect() && kernel::AnswerFeed::isServable(chain.cluster()->store());
}

uint8_t flagsOf(const Zone& route) {
  const resolve::ClusterZone& cluster = *route.chain->cluster();
  const dns::Name& zone = cluster.store().zone();
  const auto meets = [&zone](const dns::Name& name) { return name.isWithin(zone) || zone.isWithin(name); };
  const auto& options = cluster.options();
  const bool goes_on = std::ranges::any_of(options.fallthrough, meets);
  const bool has_sources = std::ranges::any_of(options.sources, meets);
  uint8_t flags = 0;
  if (route.chain->parts.recursion_available) flags |= kernel::kRecursion;
  if (!goes_on && !has_sources) flags |= kernel::kWhole;
  if (has_sources) flags |= kernel::kHeldOnly;
  return flags;
}

PlannedZone plannedZone(const Zone& route) {
  return {.store = &route.chain->cluster()->store(), .route = &route, .flags = flagsOf(route)};
}

std::vector<PlannedZone> planZones(const std::vector<Zone>& routes) {
  std::vector<PlannedZone> planned;
  for (const Zone& route : routes) {
    if (!mayAnswer(route)) continue;
    const dns::Name& zone = route.chain->cluster()->store().zone();
    if (routeOf(routes, zone) == &route && !isDivided(routes, zone)) planned.push_back(plannedZone(route));
  }
  std::ranges::stable_sort(planned, [](const PlannedZone& a, const PlannedZone& b) {
    return a.store->zone().size() > b.store->zone().size();
  });
  if (planned.size() > kernel::kListenerZones) planned.resize(kernel::kListenerZones);
  return planned;
}

// The kernel answers PTR only if one block serves both in-addr.arpa and ip6.arpa.
std::vector<PlannedZone> planReverse(const std::vector<Zone>& routes) {
  static const dns::Name kIpv4 = nameOf("in-addr.arpa.");
  static const dns::Name kIpv6 = nameOf("ip6.arpa.");
  const Zone* route = routeOf(routes, kIpv4);
  if (route == nullptr || route != routeOf(routes, kIpv6) || !mayAnswer(*route)) return {};
  if (isDivided(routes, kIpv4) || isDivided(routes, kIpv6)) return {};
  return {plannedZone(*route)};
}

kernel::ListenerKey keyOf(const IpAddress& ip, uint16_t port, uint32_t interface) {
  kernel::ListenerKey key{};
  key.interface = interface;
  if (ip.isV4()) {
    key.address[10] = key.address[11] = 0xff;
    std::memcpy(key.address + 12, ip.data(), ip.size());
  } else {
    std::memcpy(key.address, ip.data(), ip.size());
  }
  key.port = htons(port);
  return key;
}

}  // namespace

std::vector<PlannedListener> planListeners(std::span<const resolve::ListenerRoutes> routes) {
  std::vector<PlannedListener> planned;
  for (const resolve::ListenerRoutes& listener : routes) {
    PlannedListener plan{
        .address = listener.address, .zones = planZones(listener.zones), .reverse = planReverse(listener.zones)};
    if (!plan.zones.empty() || !plan.reverse.empty()) planned.push_back(std::move(plan));
  }
  return planned;
}

std::vector<kernel::ListenerKey> keysOf(const SocketAddress& address, std::span<const SocketAddress> taken,
                                        std::span<const net::AssignedAddress> assigned) {
  std::vector<kernel::ListenerKey> keys;
  const auto add = [&keys, &address](const IpAddress& ip, uint32_t interface) {
    if (!ip.isV6() || !ip.isLinkLocal()) keys.push_back(keyOf(ip, address.port, interface));
  };
  const auto is_taken = [&](const auto& is_meant) {
    return std::ranges::any_of(
        taken, [&](const SocketAddress& other) { return other.port == address.port && is_meant(other.ip); });
  };
  const bool is_everywhere = address.ip.isUnspecified();
  if (!is_everywhere) add(address.ip, kernel::kLoopback);
  // All of 127/8 is local, unless a part of it is another listener's.
  const bool has_loopback = !is_taken([](const IpAddress& ip) { return ip.isV4() && ip.isLoopback(); });
  if (is_everywhere && address.ip.isV4() && has_loopback) add(IpAddress::v4({127, 0, 0, 0}), kernel::kLoopback);
  for (const net::AssignedAddress& one : assigned) {
    const bool is_meant = is_everywhere ? one.ip.family() == address.ip.family() &&
                                              !is_taken([&one](const IpAddress& ip) { return ip == one.ip; })
                                        : one.ip == address.ip;
    if (!is_meant) continue;
    if (is_everywhere) add(one.ip, kernel::kLoopback);
    if (one.interface != kernel::kLoopback) add(one.ip, one.interface);
  }
  return keys;
}

kernel::ListenerKey ownAddressKey(const IpAddress& ip) { return keyOf(ip, 0, kernel::kLoopback); }

}  // namespace idetcd::directive
