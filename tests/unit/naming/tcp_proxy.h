// A TCP forwarder on a loopback port, between a client and an etcd, that can be cut: for partitions, and for answers
// that are lost at a given request. One thread of its own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <fcntl.h>
#include <functional>
#include <list>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace idetcd::naming {

class TcpProxy {
 public:
  // Sees what the client sends, before it is forwarded; false: the bytes are swallowed and the connections are cut.
  // On the proxy's thread.
  using Filter = std::function<bool(std::string_view)>;

  explicit TcpProxy(uint16_t target_port) : target_port_(target_port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    if (bind(listener_, generic(&address), length) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, generic(&address), &length) != 0) {
      throw std::runtime_error("TcpProxy: no port");
    }
    port_ = ntohs(address.sin_port);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    thread_ = std::thread([this] { run(); });
  }
  ~TcpProxy() {
    ending_ = true;
    wake();
    thread_.join();
    for (const Pair& pair : pairs_) closePair(pair);
    close(listener_);
    close(wake_);
  }
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }

  void setFilter(Filter filter) {
    const std::lock_guard lock(mutex_);
    filter_ = std::move(filter);
  }
  // The client hears nothing any more; what it sends still goes through.
  void mute(bool muted) { muted_ = muted; }
  // Every connection is cut, and new ones are cut at once, until restore().
  void cut() {
    cut_ = true;
    muted_ = false;
    wake();
  }
  void restore() { cut_ = false; }

 private:
  struct Pair {
    int client = -1;
    int server = -1;
  };

  static sockaddr* generic(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }
  static sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static void closePair(const Pair& pair) {
    close(pair.client);
    close(pair.server);
  }
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored = write(wake_, &one, sizeof one);
  }

  void run() {
    while (!ending_) {
      std::vector<pollfd> polled{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        polled.push_back({pair.client, POLLIN, 0});
        polled.push_back({pair.server, POLLIN, 0});
      }
      poll(polled.data(), polled.size(), -1);
      uint64_t count;
      [[maybe_unused]] const ssize_t ignored = read(wake_, &count, sizeof count);
      size_t i = 2;
      for (auto pair = pairs_.begin(); pair != pairs_.end(); i += 2) {
        const bool alive = !cut_ && (polled[i].revents == 0 || forward(pair->client, pair->server, true)) &&
                           (polled[i + 1].revents == 0 || forward(pair->server, pair->client, false));
        if (alive) {
          ++pair;
        } else {
          closePair(*pair);
          pair = pairs_.erase(pair);
        }
      }
      if (polled[1].revents != 0) accept();
    }
  }

  void accept() {
    Pair pair;
    pair.client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    pair.server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(target_port_);
    if (cut_ || connect(pair.server, generic(&address), sizeof address) != 0) {
      closePair(pair);
      return;
    }
    pairs_.push_back(pair);
  }

  bool forward(int from, int to, bool from_client) {
    std::array<char, 65536> buffer;
    const ssize_t size = read(from, buffer.data(), buffer.size());
    if (size <= 0) return false;
    const std::string_view bytes(buffer.data(), static_cast<size_t>(size));
    if (from_client) {
      const std::lock_guard lock(mutex_);
      if (filter_ && !filter_(bytes)) {
        cut_ = true;
        return false;
      }
    } else if (muted_) {
      return true;
    }
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }

  const uint16_t target_port_;
  uint16_t port_ = 0;
  int listener_ = -1;
  int wake_ = -1;
  std::atomic<bool> ending_{false};
  std::atomic<bool> cut_{false};
  std::atomic<bool> muted_{false};
  std::mutex mutex_;
  Filter filter_;  // guarded by mutex_
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace idetcd::naming
