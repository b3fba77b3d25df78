// One loop with its sockets, and the thread that runs it. The first worker of a server has none: its loop is the
// process's main loop.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"
#include "net/event_loop.h"
#include "server/tcp_service.h"
#include "server/udp_service.h"
#include "server/worker_context.h"

namespace idetcd::server {

// Whether sockets of several workers have one address. SO_REUSEPORT alone would let another process of this user share
// it as well: so the first socket is bound without, which finds out whether the address is free, and opened to the
// others then.
enum class Sharing : uint8_t { kNone, kFound, kJoin };

class Worker {
 public:
  // Runs on `loop`, which somebody else runs.
  Worker(net::EventLoop& loop, records::EpochDomain& epochs, std::shared_ptr<WriteBudget> budget);
  // Has a loop of its own, which start() runs on a thread.
  Worker(records::EpochDomain& epochs, std::shared_ptr<WriteBudget> budget);
  ~Worker();  // REQUIRES: close() was called if start() was.
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs `work` on the loop's thread and returns when it is done. Before start(), and for the worker without a thread,
  // it runs here. Not within a callback of the loop, but for the worker without a thread.
  void runOnLoop(const std::function<void()>& work);

  // --- on the loop's thread ---
  // Binds one address for UDP and TCP. The error names the socket.
  Result<void> listen(const SocketAddress& address, Sharing sharing, std::shared_ptr<const resolve::Resolver> resolver);
  // Lets other sockets of ours have `address`, or one that it overlaps, as well. REQUIRES: something listens there.
  void allowSharing(const SocketAddress& address);
  // Has what listens on `address` ask another resolver from the next query on. The one before lives on until it has
  // answered what it has taken. REQUIRES: something listens there.
  void setResolver(const SocketAddress& address, const std::shared_ptr<const resolve::Resolver>& resolver);
  // Closes the sockets and connections of one address.
  void closeAddress(const SocketAddress& address);

  void start();
  // Closes every socket and connection, and ends the thread if there is one. Not on that thread.
  void close();

  net::EventLoop& loop() { return context_.loop; }
  const Counters& counters() const { return context_.counters; }

 private:
  struct Listening {
    SocketAddress address;
    std::unique_ptr<UdpService> udp;
    std::unique_ptr<TcpService> tcp;
  };

  std::unique_ptr<net::EventLoop> own_loop_;
  WorkerContext context_;
  void release();

  std::vector<Listening> listening_;
  std::vector<std::shared_ptr<const resolve::Resolver>> replaced_;  // but still busy
  net::Timer release_timer_;
  std::thread thread_;
};

}  // namespace idetcd::server
