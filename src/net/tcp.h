// TCP listeners and connections, incoming and outgoing, on an EventLoop. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "net/event_loop.h"
#include "net/stream.h"

namespace idetcd::net {

class TcpListener;
class TcpConnector;

using TcpHandler = StreamHandler;

class TcpConnection : public Stream {
 public:
  ~TcpConnection() override;
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  void start(StreamHandler& handler) override;
  // REQUIRES: connected.
  void pauseReading();
  void resumeReading();

  bool write(std::vector<uint8_t>&& octets) override;
  bool isDrained() const;
  // Bytes that were written but wait for the kernel to take them, and those that it has taken.
  size_t queued() const;
  uint64_t taken() const;
  std::string failure() const override;

  const SocketAddress& remote() const;
  const SocketAddress& local() const;  // of an incoming connection

 private:
  friend class TcpListener;
  friend class TcpConnector;
  struct Impl;
  explicit TcpConnection(Impl* impl) : impl_(impl) {}
  Impl* impl_;
};

class TcpListener {
 public:
  using Accept = std::function<void(std::unique_ptr<TcpConnection>)>;

  static Result<std::unique_ptr<TcpListener>> listen(EventLoop& loop, const SocketAddress& address, bool reuse_port,
                                                     Accept accept);
  ~TcpListener();  // stops listening; connections go on
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  SocketAddress localAddress() const;
  // Lets listeners that are made with `reuse_port` from now on share the address, though this one was made without.
  void allowSharing();

 private:
  struct Impl;
  explicit TcpListener(Impl* impl) : impl_(impl) {}
  Impl* impl_;
};

// Makes outgoing connections.
class TcpConnector {
 public:
  explicit TcpConnector(EventLoop& loop);

  // A connection on its way. An error if none can even be tried: no descriptor, no such network. REQUIRES: start() is
  // called before the loop goes on.
  Result<std::unique_ptr<TcpConnection>> connect(const SocketAddress& address);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace idetcd::net
