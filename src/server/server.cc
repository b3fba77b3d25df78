#include "server/server.h"

#include <algorithm>

#include <fmt/format.h>

namespace idetcd::server {

namespace {

bool hostHasIpv6() { return net::UdpSocket::bind({.ip = IpAddress::v6({}), .port = 0}, false).has_value(); }

// SO_REUSEPORT lets another process of this user share the address as well. Who has it for himself can bind without.
Result<void> checkUnused(const SocketAddress& address) {
  if (const auto socket = net::UdpSocket::bind(address, false); !socket) {
    return fail(fmt::format("listen udp {}: {}", address.toString(), socket.error().message));
  }
  return {};
}

}  // namespace

Server::Server(net::EventLoop& loop, records::EpochDomain& epochs) : epochs_(epochs) {
  workers_.push_back(std::make_unique<Worker>(loop, epochs));
}

Result<void> Server::open(const std::vector<Listen>& listens) {
  const bool ipv6 = hostHasIpv6();
  for (const Listen& listen : listens) {
    while (workers_.size() < listen.workers) workers_.push_back(std::make_unique<Worker>(epochs_));
    std::vector<SocketAddress> addresses{listen.address};
    if (listen.any_address) {
      // Two sockets rather than one for both families: IPv4 stays free of mapped addresses.
      addresses = {{.ip = IpAddress::v4({}), .port = listen.address.port}};
      if (ipv6) addresses.push_back({.ip = IpAddress::v6({}), .port = listen.address.port});
    }
    std::vector<std::shared_ptr<const resolve::Resolver>> resolvers;
    for (size_t i = 0; i < listen.workers; ++i) {
      auto resolver = listen.make_resolver(i, workers_[i]->loop());
      if (!resolver) return tl::unexpected(resolver.error());
      resolvers.push_back(std::move(*resolver));
    }
    for (const SocketAddress& address : addresses) {
      if (auto opened = openAddress(address, listen.workers > 1, resolvers); !opened) return opened;
    }
  }
  return {};
}

Result<void> Server::openAddress(const SocketAddress& address, bool shared,
                                 const std::vector<std::shared_ptr<const resolve::Resolver>>& resolvers) {
  if (shared) {
    if (auto unused = checkUnused(address); !unused) return unused;
  }
  for (size_t i = 0; i < resolvers.size(); ++i) {
    if (auto opened = workers_[i]->listen(address, shared, resolvers[i]); !opened) return opened;
  }
  return {};
}

void Server::start() {
  for (const auto& worker : workers_) worker->start();
}

void Server::close() {
  // The first one last: what its handlers share with the others (a LoopProbe) must be destroyed on its loop.
  for (auto worker = workers_.rbegin(); worker != workers_.rend(); ++worker) (*worker)->close();
}

}  // namespace idetcd::server
