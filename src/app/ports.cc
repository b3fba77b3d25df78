#include "app/ports.h"

#include <set>

#include "net/local_addresses.h"

namespace idetcd::app {
namespace {

std::optional<PortConflict> foreignHolder(const SocketAddress& address, std::string_view protocol) {
  const auto holders = net::portHolders(protocol, address);
  const auto is_foreign = [](const net::PortHolder& one) { return one.program != "idetcd" && one.user != "idetcd"; };
  const auto holder = std::ranges::find_if(holders, is_foreign);
  if (holder == holders.end()) return std::nullopt;
  return PortConflict{.text = fmt::format("on this machine {}, which keeps the server from {}", holder->toString(),
                                          address.toString()),
                      .holder = *holder};
}

struct Listener {
  SocketAddress address;
  config::Scheme scheme;
};

std::vector<Listener> listenersOf(const Plan& plan) {
  std::vector<Listener> wanted;
  for (const resolve::Block& block : plan.blocks) {
    auto bound = boundAddresses(block);
    if (!bound) continue;  // the server may run on another machine
    if (bound->empty()) *bound = {{.ip = IpAddress::v4({})}, {.ip = IpAddress::v6({})}};
    for (const config::ServerKey& key : block.keys) {
      for (SocketAddress& address : *bound) {
        address.port = key.port;
        wanted.push_back({.address = address, .scheme = key.scheme});
      }
    }
  }
  return wanted;
}

}  // namespace

std::vector<SocketAddress> wantedAddresses(const Plan& plan) {
  std::vector<SocketAddress> wanted;
  for (const Listener& listener : listenersOf(plan)) {
    if (std::ranges::find(wanted, listener.address) == wanted.end()) wanted.push_back(listener.address);
  }
  return wanted;
}

std::vector<PortConflict> portConflicts(const Plan& plan) {
  const std::vector<Listener> of_dns = listenersOf(plan);
  std::vector<PortConflict> conflicts;
  const auto add_holder = [&conflicts](const SocketAddress& address, std::string_view protocol) {
    auto conflict = foreignHolder(address, protocol);
    if (!conflict) return false;
    conflicts.push_back(std::move(*conflict));
    return true;
  };
  std::set<SocketAddress> others;
  for (const resolve::Block& block : plan.blocks) {
    for (const auto& [type, directive] : block.directives) {
      for (const SocketAddress& address : directive->endpoints()) {
        const auto is_rival = [&](const Listener& one) {
          return one.address == address || net::overlap(one.address, address);
        };
        if (std::ranges::any_of(of_dns, is_rival)) {
          conflicts.push_back({.text = fmt::format("plugin/{} listens on {}, where the server answers DNS", type->name,
                                                   address.toString()),
                               .holder = {}});
        } else if (others.insert(address).second) {
          add_holder(address, "tcp");
        }
      }
    }
  }
  for (const SocketAddress& address : wantedAddresses(plan)) {
    const auto is_plain = [&](const Listener& one) { return one.address == address && one.scheme == config::Scheme::kDns; };
    const bool has_udp = std::ranges::any_of(of_dns, is_plain);
    if (!has_udp || !add_holder(address, "udp")) add_holder(address, "tcp");
  }
  return conflicts;
}

}  // namespace idetcd::app
