// A bound, non-blocking UDP socket and its batches: one recvmmsg(2) into a slab of buffers, one sendmmsg(2) out of
// them. On a wildcard address each answer leaves from the address that was asked. One thread. From sockets kept across
// restarts UdpBatch reads copies (MSG_PEEK) and removes queries only after answering: what a killed process leaves, the
// next one answers, some a second time.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/file_descriptor.h"
#include "base/ip_address.h"
#include "base/metrics.h"
#include "base/result.h"
#include "net/event_loop.h"

namespace idetcd::net {

// Where a datagram came from and, on a wildcard socket, the address it was sent to: all that an answer needs later.
struct UdpPeer {
  sockaddr_in6 source{};
  socklen_t source_size = 0;
  alignas(8) std::array<uint8_t, CMSG_SPACE(sizeof(in6_pktinfo))> control{};
  size_t control_size = 0;
};

class UdpSocket {
 public:
  // Room for what comes while the server is started anew: the kernel doubles it, and counts some 770 bytes for a small
  // datagram, so that 50,000 a second find room for 0.8 s. It takes memory only while they wait. Without CAP_NET_ADMIN the
  // kernel's maximum has to do.
  static constexpr int kReceiveBuffer = 16 << 20;

  // `reuse_port`: several sockets share the address, and the kernel spreads clients over them.
  static Result<UdpSocket> bind(const SocketAddress& address, bool reuse_port);
  // One that is bound to `address` already, with what waits in it.
  static Result<UdpSocket> adopt(FileDescriptor bound, const SocketAddress& address);
  ~UdpSocket();
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;
  UdpSocket& operator=(UdpSocket&&) = delete;

  int fd() const { return fd_; }
  bool isWildcard() const { return wildcard_; }
  SocketAddress localAddress() const;  // with the port that the kernel chose for port 0
  // Lets sockets that are bound with `reuse_port` from now on share the address, though this one was bound without.
  void allowSharing();
  // Datagrams that the kernel had no room for, since the socket is there: the receive buffer was full. Any thread.
  uint64_t overflowed() const;
  // Returns how many could not be sent.
  size_t sendAll(std::span<mmsghdr> messages) const;
  // Has MSG_PEEK begin with the first datagram, and go on behind what it has shown. False: the kernel cannot.
  bool peekFromFirst() const;
  // Whether it has shown datagrams, but empty ones, that are still there.
  bool hasShown() const;
  bool isReadable() const;  // now

 private:
  UdpSocket(int fd, bool wildcard) : fd_(fd), wildcard_(wildcard) {}
  bool setOptions(bool is_v4) const;
  int fd_;
  bool wildcard_;
};

class UdpBatch {
 public:
  static constexpr size_t kCapacity = 64;      // datagrams
  static constexpr size_t kBufferSize = 4096;  // bytes of a query or a response

  UdpBatch();

  // From now on a datagram leaves the socket with flush() only. The first batch is taken for good, though, if a process
  // before has ended over one: it may have a query that makes every process crash. Nothing changes if the kernel cannot
  // do it. REQUIRES: nobody else reads the socket; not between receive() and flush().
  void keepUntilFlush(const UdpSocket& socket);
  // After the socket was readable, and receive() has returned nothing. If it still is, the next batch is taken for good:
  // it brings what MSG_PEEK passes over, an empty datagram that was shown to a process before.
  void takeHidden(const UdpSocket& socket);

  // Takes the datagrams that have arrived, at most kCapacity. Returns how many; 0 also for an error.
  size_t receive(const UdpSocket& socket);

  // The i-th datagram received, where its answer is written too; kBufferSize bytes and some slack are there.
  uint8_t* buffer(size_t i) { return buffers_[i].data(); }
  size_t size(size_t i) const { return received_[i].msg_len; }
  bool isTruncated(size_t i) const { return (received_[i].msg_hdr.msg_flags & MSG_TRUNC) != 0; }
  const sockaddr* source(size_t i) const { return reinterpret_cast<const sockaddr*>(&sources_[i]); }
  uint16_t sourcePort(size_t i) const {  // the same place in sockaddr_in and sockaddr_in6
    return ntohs(reinterpret_cast<const sockaddr_in*>(&sources_[i])->sin_port);
  }

  UdpPeer peer(size_t i) const;

  // Queues the first `size` bytes of buffer i as the answer to datagram i.
  void reply(size_t i, size_t size) {
    vectors_[i].iov_len = size;
    msghdr& header = replies_[reply_count_++].msg_hdr;
    header = received_[i].msg_hdr;
    header.msg_flags = 0;
  }
  // Sends what is queued. Returns how many could not be sent.
  size_t flush(const UdpSocket& socket);

 private:
  // A stride that is no power of two: the first lines of 64 buffers would else share one cache set.
  using Buffer = std::array<uint8_t, kBufferSize + 192>;
  struct alignas(8) Control {
    std::array<uint8_t, CMSG_SPACE(sizeof(in6_pktinfo))> bytes;
  };

  void prepare(size_t i, bool with_control);
  void takeOut(const UdpSocket& socket);
  void takeNext(const UdpSocket& socket);

  std::unique_ptr<Buffer[]> buffers_;
  std::array<sockaddr_in6, kCapacity> sources_{};
  std::array<Control, kCapacity> controls_{};
  std::array<iovec, kCapacity> vectors_{};
  std::array<mmsghdr, kCapacity> received_{};
  std::array<mmsghdr, kCapacity> replies_{};
  size_t received_count_ = kCapacity;  // how many must be prepared again
  size_t reply_count_ = 0;
  int flags_ = MSG_DONTWAIT;                                   // of receive()
  std::unique_ptr<std::array<mmsghdr, kCapacity>> taken_out_;  // null: receive() has taken them out itself
};

// Answers that come later than the batch of their queries, collected until the loop is about to wait and then sent with
// one system call. Loop thread only.
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
