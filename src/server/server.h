// The DNS listeners of the whole process: on every address, over UDP and TCP. Loop thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "resolve/resolver.h"
#include "server/tcp_service.h"
#include "server/udp_service.h"
#include "server/worker_context.h"

namespace idetcd::server {

// What is served on one port of one address, or of all (`any_address`, then `address.ip` is not looked at).
struct Listen {
  SocketAddress address;
  bool any_address = false;
  std::shared_ptr<const resolve::Resolver> resolver;
};

class Server {
 public:
  Server(net::EventLoop& loop, records::EpochDomain& epochs) : context_(loop, epochs) {}

  // Binds and listens: from here on queries are answered, as soon as the loop runs. All or an error that names the
  // socket, "listen udp 127.0.0.1:53: Address already in use".
  Result<void> open(const std::vector<Listen>& listens);
  // Closes every socket and connection.
  void close();

  const Counters& counters() const { return context_.counters; }

 private:
  Result<void> openAddress(const SocketAddress& address, const std::shared_ptr<const resolve::Resolver>& resolver);

  WorkerContext context_;
  std::vector<std::unique_ptr<UdpService>> udp_;
  std::vector<std::unique_ptr<TcpService>> tcp_;
};

}  // namespace idetcd::server
