// One loop with its sockets, and the thread that runs it. The first worker of a server has none: its loop is the
// process's main loop.
#pragma once

#include <thread>

#include "base/file_descriptor.h"
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

// Sockets of one address that were there before this process; those that are not open there were not.
struct Inherited {
  FileDescriptor udp;
  FileDescriptor tcp;
};

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
  // Binds one address for UDP and TCP, or goes on with a socket of `inherited`.
  tl::expected<void, Refusal> listen(const SocketAddress& address, Sharing sharing,
                                     std::shared_ptr<const resolve::Router> router, const resolve::TcpLimits& tcp,
                                     Inherited inherited = {});
  // Lets other sockets of ours have `address`, or one that it overlaps, as well. REQUIRES: something listens there.
  void allowSharing(const SocketAddress& address);
  // Has what listens on `address` ask another router from the next query on, within other limits. The one before lives on until it has
  // answered what it has taken. REQUIRES: something listens there.
  void setRouter(const SocketAddress& address, const std::shared_ptr<const resolve::Router>& router,
                 const resolve::TcpLimits& tcp);
  // Closes the sockets and connections of one address.
  void closeAddress(const SocketAddress& address);
  // The sockets that listen on it. REQUIRES: something listens there.
  struct Descriptors {
    int udp;
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
    std::unique_ptr<UdpService> udp;
    std::unique_ptr<TcpService> tcp;
  };

  std::unique_ptr<net::EventLoop> own_loop_;
  WorkerContext context_;
  void release();
  Result<std::unique_ptr<TcpService>> listenTcp(const SocketAddress& address, Sharing sharing,
                                                const std::shared_ptr<const resolve::Router>& router,
                                                const TcpService::Limits& limits, FileDescriptor inherited);

  std::vector<Listening> listening_;
  std::vector<std::shared_ptr<const resolve::Router>> replaced_;  // but still busy
  net::Timer release_timer_;
  std::thread thread_;
};

}  // namespace idetcd::server
