// Accepts connections for a server of gRPC, so many at once: gRPC itself sets no bound, and strangers could take all
// descriptors of the process. For etcd/*.cc only.
#pragma once

#include <map>
#include <thread>

#include <grpcpp/server_builder.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/ip_address.h"
#include "base/metrics.h"
#include "base/result.h"

namespace idetcd::etcd {

class Acceptor {
 public:
  using Taker = grpc::experimental::ExternalConnectionAcceptor;

  // `refused` counts connections that are closed as there are `most`; only the acceptor's thread writes it. Outlives this.
  Acceptor(size_t most, metrics::Counter& refused) : most_(most), refused_(refused) {}
  ~Acceptor() { stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // On any free port, which it returns. Before start().
  Result<SocketAddress> listen(const IpAddress& address);
  // Connections go to `taker`, whose server has started, until stop().
  Result<void> start(std::unique_ptr<Taker> taker);
  // Waits for the thread, which waits for nothing. Idempotent.
  void stop();

 private:
  void run();
  void accept(int listener);
  bool isFull();

  const size_t most_;
  metrics::Counter& refused_;
  std::vector<FileDescriptor> listeners_;
  FileDescriptor stopping_;
  std::unique_ptr<Taker> taker_;
  std::thread thread_;
  // The thread's alone: the descriptors of connections that gRPC has, and the inodes of these: once gRPC has closed one, its
  // descriptor is of none, or of another.
  std::map<int, uint64_t> open_;
  BootClock::time_point next_look_;
};

}  // namespace idetcd::etcd
