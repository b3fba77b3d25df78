#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "dns/wire.h"
#include "load/client.h"

namespace idetcd::bench {
namespace {

constexpr size_t kLengthSize = 2;
constexpr size_t kReadSize = 64 << 10;

// All queries of a turn leave with one write, and what was answered is taken from one read.
class TcpClient final : public Client {
 public:
  TcpClient(const Target& target, size_t window, QuerySource& source, Statistics& statistics)
      : target_(target), window_(window, target.echo, source, statistics), in_(2 * kReadSize) {
    out_.reserve(window * (kLengthSize + QuerySource::kMaxQuerySize));
    if (open()) return;
    std::perror("connect");
    std::exit(1);
  }
  ~TcpClient() override { close(fd_); }
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;

  int fd() const override { return fd_; }
  Window& window() override { return window_; }

  void send(uint64_t time) override {
    if (!out_.empty() || window_.free() == 0) return flush();
    const size_t count = window_.free();
    for (size_t i = 0; i < count; ++i) {
      const std::span<const uint8_t> packet = window_.prepare(i);
      out_.push_back(static_cast<uint8_t>(packet.size() >> 8));
      out_.push_back(static_cast<uint8_t>(packet.size()));
      out_.insert(out_.end(), packet.begin(), packet.end());
    }
    window_.sent(count, time);
    flush();
  }

  void flush() override {
    if (out_.empty()) return;
    const ssize_t size = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (size > 0) out_.erase(out_.begin(), out_.begin() + size);
  }

  bool receive(uint64_t& time) override {
    const ssize_t size = recv(fd_, in_.data() + filled_, in_.size() - filled_, MSG_DONTWAIT);
    time = now();
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) {
      reopen();
      return false;
    }
    if (size < 0) return false;
    filled_ += static_cast<size_t>(size);
    takeWhole(time);
    return true;
  }

 private:
  bool open() {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(target_.port);
    to.sin_addr = target_.address;
    return connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
           fcntl(fd_, F_SETFL, O_NONBLOCK) == 0;
  }

  // With the same descriptor: others have it in their poll sets.
  void reopen() {
    window_.giveUpAll();
    out_.clear();
    filled_ = 0;
    const int old = fd_;
    if (!open()) {
      std::perror("connect");
      std::exit(1);
    }
    dup3(fd_, old, O_CLOEXEC);
    close(fd_);
    fd_ = old;
  }

  void takeWhole(uint64_t time) {
    size_t at = 0;
    while (filled_ - at >= kLengthSize) {
      const size_t size = dns::load16(in_.data() + at);
      if (filled_ - at - kLengthSize < size) break;
      window_.take({in_.data() + at + kLengthSize, size}, time);
      at += kLengthSize + size;
    }
    std::memmove(in_.data(), in_.data() + at, filled_ - at);
    filled_ -= at;
  }

  const Target target_;
  Window window_;
  int fd_ = -1;
  std::vector<uint8_t> out_;  // what the last write has left
  std::vector<uint8_t> in_;   // room for the largest message and a read
  size_t filled_ = 0;
};

}  // namespace

std::unique_ptr<Client> makeTcpClient(const Target& target, size_t window, QuerySource& source,
                                      Statistics& statistics) {
  return std::make_unique<TcpClient>(target, window, source, statistics);
}

}  // namespace idetcd::bench
