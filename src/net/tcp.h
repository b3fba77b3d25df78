// TCP listeners and connections on an EventLoop. Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"
#include "net/event_loop.h"

namespace idetcd::net {

class TcpListener;

// What a connection tells its owner. The owner may destroy the connection in any of these calls.
class TcpHandler {
 public:
  virtual ~TcpHandler() = default;
  virtual void onData(std::span<const uint8_t> octets) = 0;
  virtual void onEnd() = 0;      // the peer will send no more; it may still read
  virtual void onDrained() = 0;  // everything written is in the kernel's hands
  virtual void onError() = 0;    // reset, or a write failed: nothing more will come
};

class TcpConnection {
 public:
  ~TcpConnection();  // closes it at once
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // Begins to read. `handler` must outlive the connection.
  void start(TcpHandler& handler);
  void pauseReading();
  void resumeReading();

  // Writes at once what the kernel takes and queues the rest, in order. Returns false if something is queued, then
  // onDrained() follows.
  bool write(std::vector<uint8_t>&& octets);
  bool isDrained() const;

  const SocketAddress& remote() const;
  const SocketAddress& local() const;

 private:
  friend class TcpListener;
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

 private:
  struct Impl;
  explicit TcpListener(Impl* impl) : impl_(impl) {}
  Impl* impl_;
};

}  // namespace idetcd::net
