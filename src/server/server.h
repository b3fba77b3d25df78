// The DNS listeners of the whole process: on every address, over UDP and TCP, on as many loops as are asked for. One
// thread at a time: the first loop's or, so that no loop waits for another one, none of them.
#pragma once

#include "base/ip_address.h"
#include "base/metrics.h"
#include "base/result.h"
#include "resolve/router.h"
#include "server/worker.h"
#include "service/socket_store.h"

namespace idetcd::server {

// The handlers of one address on one worker's loop, made before the loop runs and destroyed on its thread. Fails with
// one line.
using RouterFactory =
    std::function<Result<std::shared_ptr<const resolve::Router>>(size_t worker, net::EventLoop& loop)>;

// The service on one port of one address. An unspecified address means all of its family.
struct Listen {
  SocketAddress address;
  size_t workers = 1;  // loops that share the address by SO_REUSEPORT; the kernel spreads clients over them
  RouterFactory make_router;
  resolve::TcpLimits tcp = {};
};

class Server {
 public:
  // `descriptors` bounds the connections of clients. The counters of each worker are labelled with its number.
  Server(net::EventLoop& loop, records::EpochDomain& epochs,
         std::shared_ptr<net::DescriptorBudget> descriptors = net::DescriptorBudget::unlimited(),
         const metrics::Scope& metrics = {});

  // From now on sockets outlive the process, by `store`, which outlives this. Before open().
  void setStore(service::SocketStore& store) { store_ = &store; }

  // Binds and listens, or continues with the given sockets of `store`: queries wait in them until the loops run. Called
  // again, it changes to other listens: an address that stays keeps sockets and connections, and no query is lost. All
  // or nothing; the error names what is wrong, "listen udp 127.0.0.1:53: Address already in use". Not within a callback
  // of a query. Waits for each loop in turn, several times: once the loops run, not on one of them.
  Result<void> open(const std::vector<Listen>& listens);
  // Ends the workers that an open() which has failed has made; the loops of the others have done what was posted to
  // them. Waits as open() does. REQUIRES: nothing is left of the handlers on their loops, but what is posted to go.
  void closeWorkers(size_t keep);
  // Starts the threads of the workers but the first.
  Result<void> start();
  // Takes no query and no connection any more, and waits for `budget` at most for the answers that come later. What is
  // not taken waits in the sockets, for the next process. Waits for each loop, as open() does.
  void stopTaking(std::chrono::milliseconds budget);
  // Closes every socket and connection and ends the threads. REQUIRES: the first loop has ended, or this is its thread.
  void close();

  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  using Routers = std::vector<std::shared_ptr<const resolve::Router>>;  // one a worker
  struct Address {
    SocketAddress address;
    Routers routers;
    resolve::TcpLimits tcp;
    bool shared = false;  // with other workers, or with the rest of a wildcard
  };

  Result<std::vector<Address>> resolveListens(const std::vector<Listen>& listens);
  void putInheritedFirst(std::vector<Address>& wanted);
  Inherited inherit(const SocketAddress& address, size_t worker);
  void keep(const SocketAddress& address, size_t worker);
  Result<Routers> makeRouters(const Listen& listen);
  Result<void> openAddress(const Address& wanted);
  void closeAddress(const SocketAddress& address);
  bool isOpen(const SocketAddress& address) const { return open_.contains(address); }
  bool shareOurs(const SocketAddress& address);

  Result<void> addWorker();
  metrics::Scope scopeOf(size_t worker) const { return metrics_.with("worker", std::to_string(worker)); }

  records::EpochDomain& epochs_;
  const std::shared_ptr<net::DescriptorBudget> descriptors_;
  const std::shared_ptr<WriteBudget> write_budget_ = std::make_shared<WriteBudget>();
  const metrics::Scope metrics_;
  const metrics::GaugeFunction unread_bytes_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<SocketAddress, size_t> open_;  // with the number of workers
  service::SocketStore* store_ = nullptr;  // null: the sockets end with the process
  bool started_ = false;
};

}  // namespace idetcd::server
