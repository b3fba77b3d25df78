#include "server/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

namespace idetcd::server {

namespace {

bool hostHasIpv6() {
  const int fd = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const SocketAddress any{.ip = IpAddress::v6({}), .port = 0};
  sockaddr_storage storage;
  const socklen_t length = any.toSockaddr(&storage);
  const bool ok = ::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0;
  ::close(fd);
  return ok;
}

}  // namespace

Result<void> Server::open(const std::vector<Listen>& listens) {
  const bool ipv6 = hostHasIpv6();
  for (const Listen& listen : listens) {
    std::vector<SocketAddress> addresses{listen.address};
    if (listen.any_address) {
      // Two sockets rather than one for both families: IPv4 stays free of mapped addresses.
      addresses = {{.ip = IpAddress::v4({}), .port = listen.address.port}};
      if (ipv6) addresses.push_back({.ip = IpAddress::v6({}), .port = listen.address.port});
    }
    for (const SocketAddress& address : addresses) {
      if (auto opened = openAddress(address, listen.resolver); !opened) return opened;
    }
  }
  return {};
}

Result<void> Server::openAddress(const SocketAddress& address,
                                 const std::shared_ptr<const resolve::Resolver>& resolver) {
  auto socket = net::UdpSocket::bind(address, false);
  if (!socket) return fail(fmt::format("listen udp {}: {}", address.toString(), socket.error().message));
  auto tcp = TcpService::listen(context_, address, false, resolver);
  if (!tcp) return fail(fmt::format("listen tcp {}: {}", address.toString(), tcp.error().message));
  udp_.push_back(std::make_unique<UdpService>(context_, std::move(*socket), resolver));
  tcp_.push_back(std::move(*tcp));
  return {};
}

void Server::close() {
  udp_.clear();
  tcp_.clear();
}

}  // namespace idetcd::server
