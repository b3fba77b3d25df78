// The DNS listeners of the whole process: on every address, over UDP and TCP, on as many loops as are asked for. One
// thread at a time: the first loop's or, so that no loop waits for another one, none of them.
#pragma once

#include <thread>

#include "base/ip_address.h"
#include "base/metrics.h"
#include "base/result.h"
#include "resolve/router.h"
#include "server/tcp_service.h"
#include "server/udp_service.h"
#include "service/socket_store.h"

namespace idetcd::server {

// Whether sockets of several workers have one address. SO_REUSEPORT alone would let another process of this user share
// it as well: so the first socket is bound without, which finds out whether the address is free, and opened to the
// others then.
enum class Sharing : uint8_t { kNone, kFound, kJoin };

// Sockets of one address that were there before this process; those that are not open there were not.
struct Inherited {
  FileDescriptor udp;
  FileDescriptor tcp;
};

// One loop with its sockets, and the thread that runs it. The first worker of a server has none: its loop is the
// process's main loop.
class Worker {
 public:
  // Runs on `loop`, which the caller runs.
  Worker(net::EventLoop& loop, records::EpochDomain& epochs, std::shared_ptr<WriteBudget> budget,
         std::shared_ptr<net::DescriptorAccount> descriptors, metrics::Scope metrics);
  // Has a loop of its own, which start() runs on a thread.
  Worker(std::unique_ptr<net::EventLoop> own_loop, records::EpochDomain& epochs, std::shared_ptr<WriteBudget> budget,
         std::shared_ptr<net::DescriptorAccount> descriptors, metrics::Scope metrics);
  ~Worker();  // REQUIRES: close() was called if start() was.
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs `work` on the loop's thread and returns when it is done. Before start() it runs here, and so it does on the
  // thread of a loop that the caller runs. Not on the thread of a loop of its own; and a loop that waits for another
  // one answers no query meanwhile.
  void runOnLoop(const std::function<void()>& work);

  // --- on the loop's thread ---
  struct Refusal {
    std::string_view protocol;  // "udp" or "tcp"
    SocketAddress address;
    Error error;
  };
  // Binds one address for UDP and TCP, or for TCP alone if it is encrypted; or goes on with a socket of `inherited`.
  tl::expected<void, Refusal> listen(const SocketAddress& address, Sharing sharing,
                                     const std::shared_ptr<const resolve::Router>& router,
                                     const resolve::TcpLimits& tcp, Carrier carrier = {}, Inherited inherited = {});
  // Lets other sockets of ours have `address`, or one that it overlaps, as well. REQUIRES: something listens there.
  void allowSharing(const SocketAddress& address);
  // Has what listens on `address` ask another router from the next query on, within other limits. The one before lives on until it has
  // answered what it has taken. REQUIRES: something listens there, encrypted if and only if `carrier` is.
  void setRouter(const SocketAddress& address, const std::shared_ptr<const resolve::Router>& router,
                 const resolve::TcpLimits& tcp, const Carrier& carrier = {});
  // Closes the sockets and connections of one address.
  void closeAddress(const SocketAddress& address);
  // The sockets that listen on it. REQUIRES: something listens there.
  struct Descriptors {
    int udp;  // -1: none
    int tcp;
  };
  Descriptors descriptors(const SocketAddress& address) const;
  // A query over UDP leaves its socket, which outlives the process, when it is answered. REQUIRES: something listens there.
  void keepUntilAnswered(const SocketAddress& address);
  // No query is taken over UDP any more, and no connection over TCP: both wait in their sockets.
  void stopTaking();
  // Whether a client waits for an answer that comes later.
  bool isBusy() const;

  // An error: the system has no thread for it.
  Result<void> start();
  // Closes every socket and connection, and ends the thread if there is one. Not on that thread. REQUIRES: a loop that
  // the caller runs has ended, or this is its thread.
  void close();

  net::EventLoop& loop() { return context_.loop; }

 private:
  struct Listening {
    SocketAddress address;
    std::unique_ptr<UdpService> udp;  // null where it is encrypted
    std::unique_ptr<TcpService> tcp;
  };

  std::unique_ptr<net::EventLoop> own_loop_;
  WorkerContext context_;
  void release();
  Result<std::unique_ptr<TcpService>> listenTcp(const SocketAddress& address, Sharing sharing,
                                                const std::shared_ptr<const resolve::Router>& router,
                                                const TcpService::Limits& limits, Carrier carrier,
                                                FileDescriptor inherited);

  std::vector<Listening> listening_;
  std::vector<std::shared_ptr<const resolve::Router>> replaced_;  // but still busy
  net::Timer release_timer_;
  std::thread thread_;
};

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
  Carrier carrier = {};
};

class Server {
 public:
  // `descriptors` bounds the connections of clients. The counters of each worker are labelled with its number.
  Server(net::EventLoop& loop, records::EpochDomain& epochs,
         std::shared_ptr<net::DescriptorBudget> descriptors = net::DescriptorBudget::unlimited(),
         const metrics::Scope& metrics = {});

  // From now on sockets outlive the process, by `store`, which outlives this. Before open().
  void setStore(service::SocketStore& store) { store_ = &store; }

  // Of the process that has what this one will listen on, which counts as bound: see resolve::Process. Before open().
  void setPredecessor(pid_t pid) { predecessor_ = pid; }

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
    Carrier carrier;
    bool shared = false;  // with other workers, or with the rest of a wildcard
  };

  Result<std::vector<Address>> resolveListens(const std::vector<Listen>& listens);
  void putInheritedFirst(std::vector<Address>& wanted);
  Inherited inherit(const Address& wanted, size_t worker);
  void keep(const Address& wanted, size_t worker);
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
  struct Open {
    size_t workers;
    bool is_encrypted;
  };
  std::map<SocketAddress, Open> open_;
  service::SocketStore* store_ = nullptr;  // null: the sockets end with the process
  bool started_ = false;
  pid_t predecessor_ = 0;
};

}  // namespace idetcd::server
