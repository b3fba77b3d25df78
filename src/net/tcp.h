// TCP listeners and connections, incoming and outgoing, on an EventLoop. Loop thread only.
#pragma once

#include "base/file_descriptor.h"
#include "base/ip_address.h"
#include "base/result.h"
#include "net/descriptor_budget.h"
#include "net/event_loop.h"
#include "net/stream.h"

namespace idetcd::net {

class TcpListener;
class TcpConnector;

class TcpConnection final : public BoundedStream {
 public:
  ~TcpConnection() override;
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  void start(StreamHandler& handler) override;
  void pauseReading() override;
  void resumeReading() override;

  bool write(std::vector<uint8_t>&& bytes) override;
  bool isDrained() const override;
  size_t queued() const override;
  uint64_t taken() const override;
  void resetAtEnd() override;
  std::string failure() const override;

  const SocketAddress& remote() const override;
  const SocketAddress& local() const override;

  // Given back when the connection is closed.
  void hold(DescriptorLease lease) { lease_ = std::move(lease); }

 private:
  friend class TcpListener;
  friend class TcpConnector;
  struct Impl;
  explicit TcpConnection(Impl* impl) : impl_(impl) {}
  Impl* impl_;
  DescriptorLease lease_;
};

// Without a free descriptor a connection waits in the kernel's queue, and is tried again ten times a second.
class TcpListener {
 public:
  using Accept = std::function<void(std::unique_ptr<TcpConnection>)>;

  static Result<std::unique_ptr<TcpListener>> listen(EventLoop& loop, const SocketAddress& address, bool reuse_port,
                                                     Accept accept);
  // With a bound or listening socket, and the connections that wait in it. Unix sockets have no addresses.
  static std::unique_ptr<TcpListener> adopt(EventLoop& loop, FileDescriptor listening, Accept accept);
  ~TcpListener();  // stops listening; connections go on
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  SocketAddress localAddress() const;
  // Lets listeners that are made with `reuse_port` from now on share the address, though this one was made without.
  void allowSharing();
  // No connection is taken any more until resume(); they wait in the kernel's queue.
  void pause();
  void resume();
  int fd() const;

 private:
  struct Impl;
  explicit TcpListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Makes outgoing connections.
class TcpConnector {
 public:
  explicit TcpConnector(EventLoop& loop);

  // A connection on its way. An error with its errno if none can even be tried: no descriptor, no such network.
  // From `source`, if it is given. REQUIRES: start() is called before the loop goes on.
  Result<std::unique_ptr<TcpConnection>> connect(const SocketAddress& address,
                                                 const std::optional<IpAddress>& source = std::nullopt);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace idetcd::net
