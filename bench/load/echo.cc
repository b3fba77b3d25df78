// The floor under every DNS server that answers over a UDP socket from an event loop: epoll_wait, recvmmsg a batch, set
// QR, append as many bytes as an answer has, sendmmsg. It reads no name and knows none. With epoll, since every server
// that also has timers, TCP and upstreams needs something like it: that a socket is watched at all costs the kernel
// some 7 % of such small work.
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <vector>

#include "common/arguments.h"

namespace idetcd::bench {
namespace {

constexpr char kUsage[] =
    "usage: echo --port N [--address 127.0.0.1] [--pad BYTES]\n"
    "Answers there until SIGTERM. --pad: what is appended to each query (16: an A record).\n";
constexpr size_t kBatch = 64;
constexpr size_t kBufferSize = 4096 + 192;  // no power of two: the first lines would share a cache set

int openSocket(const char* host, uint16_t port) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int buffer = 4 << 20;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer));
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) return -1;
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? fd : -1;
}

class Echo {
 public:
  Echo(int fd, size_t pad) : fd_(fd), pad_(pad), buffers_(kBatch) {}

  void run() {
    const int loop = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{.events = EPOLLIN, .data = {}};
    if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, fd_, &event) != 0) return;
    while (epoll_wait(loop, &event, 1, -1) >= 0 || errno == EINTR) {
      while (turn() == kBatch) continue;
    }
  }

 private:
  size_t turn() {
    for (size_t i = 0; i < kBatch; ++i) {
      vectors_[i] = {.iov_base = buffers_[i].data(), .iov_len = kBufferSize};
      messages_[i].msg_hdr = {};
      messages_[i].msg_hdr.msg_name = &sources_[i];
      messages_[i].msg_hdr.msg_namelen = sizeof(sources_[i]);
      messages_[i].msg_hdr.msg_iov = &vectors_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
    const int received = recvmmsg(fd_, messages_.data(), kBatch, MSG_DONTWAIT, nullptr);
    for (int i = 0; i < received; ++i) {
      const auto index = static_cast<size_t>(i);
      buffers_[index][2] |= 0x80;
      vectors_[index].iov_len = messages_[index].msg_len + pad_;
    }
    for (int sent = 0; sent < received;) {
      const int n = sendmmsg(fd_, &messages_[static_cast<size_t>(sent)], static_cast<unsigned>(received - sent), 0);
      if (n <= 0) break;
      sent += n;
    }
    return received > 0 ? static_cast<size_t>(received) : 0;
  }

  const int fd_;
  const size_t pad_;
  std::vector<std::array<unsigned char, kBufferSize + 256>> buffers_;
  std::array<sockaddr_in, kBatch> sources_{};
  std::array<iovec, kBatch> vectors_{};
  std::array<mmsghdr, kBatch> messages_{};
};

}  // namespace
}  // namespace idetcd::bench

int main(int argc, char** argv) {
  idetcd::bench::Arguments arguments(argc, argv, idetcd::bench::kUsage);
  const auto port = arguments.number<uint16_t>("--port", 0);
  const auto host = arguments.text("--address", "127.0.0.1");
  const auto pad = arguments.number<size_t>("--pad", 16);
  arguments.finish();
  const int fd = idetcd::bench::openSocket(host.c_str(), port);
  if (fd < 0 || pad > 256) {
    std::perror("echo");
    return 1;
  }
  idetcd::bench::Echo(fd, pad).run();
  return 1;
}
