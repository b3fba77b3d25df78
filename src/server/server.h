// The DNS listeners of the whole process: on every address, over UDP and TCP, on as many loops as are asked for. Main
// thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "resolve/resolver.h"
#include "server/worker.h"

namespace idetcd::server {

// The handlers of one address on one worker's loop, made before the loop runs and destroyed on its thread. Fails with
// one line.
using ResolverFactory =
    std::function<Result<std::shared_ptr<const resolve::Resolver>>(size_t worker, net::EventLoop& loop)>;

// What is served on one port of one address. An unspecified address means all of its family.
struct Listen {
  SocketAddress address;
  size_t workers = 1;  // loops that share the address by SO_REUSEPORT; the kernel spreads clients over them
  ResolverFactory make_resolver;
};

// The addresses that stand for "everywhere": of both families, or of IPv4 alone on a host without IPv6. Two sockets
// rather than one for both, so that IPv4 stays free of mapped addresses.
std::vector<SocketAddress> anyAddresses(uint16_t port);

class Server {
 public:
  Server(net::EventLoop& loop, records::EpochDomain& epochs);

  // Binds and listens: from here on queries are taken, and answered as soon as the loops run. Called again, it goes
  // over to other listens: an address that stays keeps its sockets and connections, and no query is lost. All or
  // nothing; the error names what is wrong, "listen udp 127.0.0.1:53: Address already in use". Not within a callback of
  // a query.
  Result<void> open(const std::vector<Listen>& listens);
  // Starts the threads of the workers but the first.
  void start();
  // Closes every socket and connection and ends the threads.
  void close();

  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  using Resolvers = std::vector<std::shared_ptr<const resolve::Resolver>>;  // one a worker
  struct Address {
    SocketAddress address;
    Resolvers resolvers;
    bool shared = false;  // with other workers, or with the rest of a wildcard
  };

  Result<std::vector<Address>> resolveListens(const std::vector<Listen>& listens);
  Result<Resolvers> makeResolvers(const Listen& listen);
  Result<void> openAddress(const Address& wanted);
  void closeAddress(const SocketAddress& address);
  bool isOpen(const SocketAddress& address) const { return open_.contains(address); }
  bool shareOurs(const SocketAddress& address);

  records::EpochDomain& epochs_;
  const std::shared_ptr<WriteBudget> write_budget_ = std::make_shared<WriteBudget>();
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<SocketAddress, size_t> open_;  // with the number of workers
  bool started_ = false;
};

}  // namespace idetcd::server
