#include <array>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load/client.h"

namespace idetcd::bench {
namespace {

constexpr size_t kBatch = 64;

[[noreturn]] void endWith(const char* what) {
  std::perror(what);
  std::exit(1);
}

// While it lives, this thread makes sockets in the network namespace of `path`.
class EnteredNetwork {
 public:
  explicit EnteredNetwork(const std::string& path) {
    if (path.empty()) return;
    own_ = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    const int other = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (own_ < 0 || other < 0 || setns(other, CLONE_NEWNET) != 0) endWith(path.c_str());
    close(other);
  }
  ~EnteredNetwork() {
    if (own_ < 0) return;
    if (setns(own_, CLONE_NEWNET) != 0) endWith("setns");
    close(own_);
  }
  EnteredNetwork(const EnteredNetwork&) = delete;
  EnteredNetwork& operator=(const EnteredNetwork&) = delete;

 private:
  int own_ = -1;
};

// The packets lie in their slots and are sent from there.
class UdpClient final : public Client {
 public:
  UdpClient(const Target& target, size_t window, QuerySource& source, Statistics& statistics)
      : window_(window, target.echo, source, statistics) {
    for (size_t i = 0; i < kBatch; ++i) {
      in_vectors_[i] = {.iov_base = in_[i].data(), .iov_len = in_[i].size()};
      in_messages_[i].msg_hdr.msg_iov = &in_vectors_[i];
      in_messages_[i].msg_hdr.msg_iovlen = 1;
      out_messages_[i].msg_hdr.msg_iov = &out_vectors_[i];
      out_messages_[i].msg_hdr.msg_iovlen = 1;
    }
    const EnteredNetwork entered(target.network);
    fd_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int size = 4 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(target.port);
    to.sin_addr = target.address;
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) endWith("connect");
  }
  ~UdpClient() override { close(fd_); }
  UdpClient(const UdpClient&) = delete;
  UdpClient& operator=(const UdpClient&) = delete;

  int fd() const override { return fd_; }
  Window& window() override { return window_; }

  void send(uint64_t time) override {
    while (window_.free() > 0) {
      const size_t count = std::min(kBatch, window_.free());
      for (size_t i = 0; i < count; ++i) {
        const std::span<uint8_t> packet = window_.prepare(i);
        out_vectors_[i] = {.iov_base = packet.data(), .iov_len = packet.size()};
      }
      const int sent = sendmmsg(fd_, out_messages_.data(), static_cast<unsigned>(count), 0);
      const size_t done = sent > 0 ? static_cast<size_t>(sent) : 0;
      window_.sent(done, time);
      if (done < count) return;
    }
  }

  bool receive(uint64_t& time) override {
    const int count = recvmmsg(fd_, in_messages_.data(), kBatch, MSG_DONTWAIT, nullptr);
    time = now();
    for (int i = 0; i < count; ++i) {
      const auto index = static_cast<size_t>(i);
      window_.take({in_[index].data(), in_messages_[index].msg_len}, time);
    }
    return count > 0;
  }

 private:
  Window window_;
  int fd_ = -1;
  std::array<std::array<uint8_t, 2048>, kBatch> in_;
  std::array<iovec, kBatch> in_vectors_{};
  std::array<mmsghdr, kBatch> in_messages_{};
  std::array<iovec, kBatch> out_vectors_{};
  std::array<mmsghdr, kBatch> out_messages_{};
};

}  // namespace

std::unique_ptr<Client> makeUdpClient(const Target& target, size_t window, QuerySource& source,
                                      Statistics& statistics) {
  return std::make_unique<UdpClient>(target, window, source, statistics);
}

}  // namespace idetcd::bench
