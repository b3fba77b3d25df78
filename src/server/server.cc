#include "server/server.h"

#include <algorithm>

#include <fmt/format.h>

namespace idetcd::server {

namespace {

// Whether the two compete for a port: a wildcard and one of its addresses.
bool overlap(const SocketAddress& a, const SocketAddress& b) {
  return a.port == b.port && a.ip.family() == b.ip.family() && a != b && (a.ip.isUnspecified() || b.ip.isUnspecified());
}

bool hostHasIpv6() { return net::UdpSocket::bind({.ip = IpAddress::v6({}), .port = 0}, false).has_value(); }

}  // namespace

std::vector<SocketAddress> anyAddresses(uint16_t port) {
  std::vector<SocketAddress> addresses{{.ip = IpAddress::v4({}), .port = port}};
  if (hostHasIpv6()) addresses.push_back({.ip = IpAddress::v6({}), .port = port});
  return addresses;
}

Server::Server(net::EventLoop& loop, records::EpochDomain& epochs) : epochs_(epochs) {
  workers_.push_back(std::make_unique<Worker>(loop, epochs, write_budget_));
}

Result<void> Server::open(const std::vector<Listen>& listens) {
  const auto wanted = resolveListens(listens);
  if (!wanted) return tl::unexpected(wanted.error());
  std::vector<SocketAddress> opened;
  for (const Address& address : *wanted) {
    if (isOpen(address.address)) continue;
    if (auto result = openAddress(address); !result) {
      for (const SocketAddress& undo : opened) closeAddress(undo);
      return result;
    }
    opened.push_back(address.address);
  }
  // From here on nothing can fail.
  const auto previous = open_;
  for (const auto& [address, workers] : previous) {
    const auto stays =
        std::find_if(wanted->begin(), wanted->end(), [&](const Address& a) { return a.address == address; });
    if (stays == wanted->end()) {
      closeAddress(address);
      continue;
    }
    for (size_t i = 0; i < workers; ++i) {
      workers_[i]->runOnLoop([&, i] { workers_[i]->setResolver(address, stays->resolvers[i]); });
    }
  }
  return {};
}

// Every address with its resolvers. New workers are made here, and their threads started if the others run.
Result<std::vector<Server::Address>> Server::resolveListens(const std::vector<Listen>& listens) {
  std::vector<Address> wanted;
  for (const Listen& listen : listens) {
    auto resolvers = makeResolvers(listen);
    if (!resolvers) return tl::unexpected(resolvers.error());
    const auto open = open_.find(listen.address);
    if (open != open_.end() && open->second != listen.workers) {
      return fail(
          fmt::format("the number of workers on {} cannot be changed without a restart", listen.address.toString()));
    }
    const bool shared = listen.workers > 1 ||
                        std::any_of(listens.begin(), listens.end(),
                                    [&listen](const Listen& other) { return overlap(listen.address, other.address); });
    wanted.push_back({.address = listen.address, .resolvers = std::move(*resolvers), .shared = shared});
  }
  return wanted;
}

Result<Server::Resolvers> Server::makeResolvers(const Listen& listen) {
  Resolvers resolvers;
  for (size_t i = 0; i < listen.workers; ++i) {
    if (i == workers_.size()) {
      workers_.push_back(std::make_unique<Worker>(epochs_, write_budget_));
      if (started_) workers_.back()->start();
    }
    Result<std::shared_ptr<const resolve::Resolver>> resolver;
    workers_[i]->runOnLoop([&] { resolver = listen.make_resolver(i, workers_[i]->loop()); });
    if (!resolver) return tl::unexpected(resolver.error());
    resolvers.push_back(std::move(*resolver));
  }
  return resolvers;
}

// The addresses of this port that are open already let another one in. False if there is none, so that finding it taken
// would mean a stranger.
bool Server::shareOurs(const SocketAddress& address) {
  bool any = false;
  for (const auto& [open, workers] : open_) {
    if (!overlap(open, address)) continue;
    any = true;
    for (size_t i = 0; i < workers; ++i) {
      workers_[i]->runOnLoop([&, i, &ours = open] { workers_[i]->allowSharing(ours); });
    }
  }
  return any;
}

Result<void> Server::openAddress(const Address& wanted) {
  Sharing sharing = wanted.shared ? Sharing::kFound : Sharing::kNone;
  if (shareOurs(wanted.address)) sharing = Sharing::kJoin;
  Result<void> opened;
  for (size_t i = 0; i < wanted.resolvers.size() && opened; ++i) {
    workers_[i]->runOnLoop([&] { opened = workers_[i]->listen(wanted.address, sharing, wanted.resolvers[i]); });
    if (sharing == Sharing::kFound) sharing = Sharing::kJoin;
  }
  open_[wanted.address] = wanted.resolvers.size();
  if (!opened) closeAddress(wanted.address);
  return opened;
}

void Server::closeAddress(const SocketAddress& address) {
  for (size_t i = 0; i < open_[address]; ++i) {
    workers_[i]->runOnLoop([&] { workers_[i]->closeAddress(address); });
  }
  open_.erase(address);
}

void Server::start() {
  started_ = true;
  for (const auto& worker : workers_) worker->start();
}

void Server::close() {
  // The first one last: what its handlers share with the others (a LoopProbe) must be destroyed on its loop.
  for (auto worker = workers_.rbegin(); worker != workers_.rend(); ++worker) (*worker)->close();
  open_.clear();
}

}  // namespace idetcd::server
