// Answers that come later than the batch of their queries, collected until the loop is about to wait and then sent with
// one system call. Loop thread only.
#pragma once

#include "base/metrics.h"
#include "net/event_loop.h"
#include "net/udp_socket.h"

namespace idetcd::net {

class UdpReplies {
 public:
  // `lost`: answers that were not sent; outlives this.
  UdpReplies(EventLoop& loop, std::shared_ptr<const UdpSocket> socket, metrics::Counter& lost);
  ~UdpReplies();  // sends what is left
  UdpReplies(const UdpReplies&) = delete;
  UdpReplies& operator=(const UdpReplies&) = delete;

  // Copies `message`; at most kMaxMessage bytes, longer ones are not sent. A failed send is lost, and counted.
  void add(const UdpPeer& peer, std::span<const uint8_t> message);
  void flush();

  static constexpr size_t kMaxMessage = UdpBatch::kBufferSize;

 private:
  static constexpr size_t kCapacity = 64;
  static constexpr size_t kRoom = 16 * kMaxMessage;  // bytes, of all together

  struct Batch {
    std::array<UdpPeer, kCapacity> peers;
    std::array<iovec, kCapacity> vectors{};
    std::array<mmsghdr, kCapacity> messages{};
    std::array<uint8_t, kRoom> bytes;
  };

  const std::shared_ptr<const UdpSocket> socket_;
  metrics::Counter& lost_;
  std::unique_ptr<Batch> batch_;  // made when it is first needed
  size_t count_ = 0;
  size_t used_ = 0;
  BeforeWait before_wait_;
};

}  // namespace idetcd::net
