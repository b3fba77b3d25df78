// Blocking clients for tests of what listens on loopback: every call ends after kTimeoutMs, so that a lost datagram is
// a failure, not a hang.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/ip_address.h"

namespace idetcd::net::test {

inline constexpr int kTimeoutMs = 10'000;

inline SocketAddress address(std::string_view ip, uint16_t port) {
  return {.ip = IpAddress::parse(ip).value(), .port = port};
}

class Socket {
 public:
  Socket(int type, const SocketAddress& local) : fd_(::socket(familyOf(local), type | SOCK_CLOEXEC, 0)) {
    sockaddr_storage storage;
    const socklen_t length = local.toSockaddr(&storage);
    ok_ = ::bind(fd_, reinterpret_cast<const sockaddr*>(&storage), length) == 0;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), ok_(other.ok_) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  Socket& operator=(Socket&&) = delete;

  bool ok() const { return ok_; }
  int fd() const { return fd_; }
  SocketAddress localAddress() const {
    sockaddr_storage storage;
    socklen_t length = sizeof(storage);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&storage), &length);
    return SocketAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&storage)).value();
  }

  bool connect(const SocketAddress& to) {
    sockaddr_storage storage;
    const socklen_t length = to.toSockaddr(&storage);
    return ::connect(fd_, reinterpret_cast<const sockaddr*>(&storage), length) == 0;
  }
  bool sendTo(const SocketAddress& to, std::string_view bytes) {
    sockaddr_storage storage;
    const socklen_t length = to.toSockaddr(&storage);
    return ::sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&storage), length) ==
           static_cast<ssize_t>(bytes.size());
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  bool isReadable(int timeout_ms) const {
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&readable, 1, timeout_ms) == 1;
  }
  // The bytes that have come, at most `size`, and from where; empty at the end of a stream; nothing in case of an
  // error.
  struct Received {
    std::string bytes;
    std::optional<SocketAddress> from;
  };
  std::optional<Received> receive(size_t size = 65536) {
    if (!isReadable(kTimeoutMs)) return std::nullopt;
    Received received{.bytes = std::string(size, '\0'), .from = {}};
    sockaddr_storage storage;
    socklen_t length = sizeof(storage);
    const ssize_t n = ::recvfrom(fd_, received.bytes.data(), size, 0, reinterpret_cast<sockaddr*>(&storage), &length);
    if (n < 0) return std::nullopt;
    received.bytes.resize(static_cast<size_t>(n));
    if (length > 0) received.from = SocketAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&storage));
    return received;
  }
  // Exactly `size` bytes of a stream; fewer if it ends before.
  std::string receiveExactly(size_t size) {
    std::string bytes;
    while (bytes.size() < size) {
      const auto part = receive(size - bytes.size());
      if (!part || part->bytes.empty()) break;
      bytes += part->bytes;
    }
    return bytes;
  }
  // Whether the peer closes now: nothing more comes, but the end or a reset.
  bool isClosedByPeer() {
    const auto rest = receive();
    return !rest ? isReadable(0) : rest->bytes.empty();
  }

 private:
  static int familyOf(const SocketAddress& local) { return local.ip.isV4() ? AF_INET : AF_INET6; }
  int fd_;
  bool ok_ = false;
};

inline Socket udpClient(std::string_view ip = "127.0.0.1") { return {SOCK_DGRAM, address(ip, 0)}; }

inline Socket tcpClientFrom(std::string_view ip, const SocketAddress& server) {
  Socket socket(SOCK_STREAM, address(ip, 0));
  socket.connect(server);
  return socket;
}
inline Socket tcpClient(const SocketAddress& server) {
  return tcpClientFrom(server.ip.isV4() ? "127.0.0.1" : "::1", server);
}

}  // namespace idetcd::net::test
