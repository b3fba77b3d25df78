#include "net/udp_socket.h"

#include <fcntl.h>
#include <linux/sock_diag.h>
#include <poll.h>
#include <unistd.h>

namespace idetcd::net {

namespace {

constexpr int kSendBuffer = 4 << 20;  // a burst: some 5,000 small datagrams

// Flags of recvmmsg(2). MSG_TRUNC: the length is the datagram's, not that of the part that was copied. By it the kernel
// moves on what MSG_PEEK shows next: by less, and that would begin within a datagram.
constexpr int kTake = MSG_DONTWAIT;
constexpr int kPeek = MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC;
constexpr int kTakeOut = MSG_DONTWAIT | MSG_TRUNC;

bool setOption(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// A socket that was given may have more than this process could ask for; it keeps that.
void enlargeBuffer(int fd, int option, int forced_option, int size) {
  int doubled = 0;
  socklen_t length = sizeof(doubled);
  if (getsockopt(fd, SOL_SOCKET, option, &doubled, &length) == 0 && doubled / 2 >= size) return;
  if (setOption(fd, SOL_SOCKET, forced_option, size)) return;
  setOption(fd, SOL_SOCKET, option, size);
}

bool isLoopback(const in_addr& address) { return address.s_addr == htonl(INADDR_LOOPBACK); }

bool cameFromLoopback(const msghdr& header) {
  const auto* source = static_cast<const sockaddr_in*>(header.msg_name);
  return source->sin_family == AF_INET && isLoopback(source->sin_addr);
}

// The answer leaves from the address that was asked, by whatever route leads back: the interface is cleared, but for
// link-local IPv6, where it is part of the address. What 127.0.0.1 asks of 127.0.0.1, most of what a node's own
// resolver is asked, leaves from there anyway, and at less cost if the kernel is not given an address.
void keepSourceOnly(msghdr& header) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof(info));
      if (isLoopback(info.ipi_addr) && cameFromLoopback(header)) {
        header.msg_control = nullptr;
        header.msg_controllen = 0;
        return;
      }
      info.ipi_ifindex = 0;
      info.ipi_spec_dst = info.ipi_addr;
      std::memcpy(CMSG_DATA(c), &info, sizeof(info));
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(c), sizeof(info));
      if (!IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) info.ipi6_ifindex = 0;
      std::memcpy(CMSG_DATA(c), &info, sizeof(info));
    }
  }
}

}  // namespace

Result<UdpSocket> UdpSocket::bind(const SocketAddress& address, bool reuse_port) {
  const int family = address.ip.isV4() ? AF_INET : AF_INET6;
  const int fd = ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return failWith(errno);
  UdpSocket socket(fd, address.ip.isUnspecified());
  bool ok = socket.setOptions(address.ip.isV4());
  if (family == AF_INET6) ok = ok && setOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (reuse_port) ok = ok && setOption(fd, SOL_SOCKET, SO_REUSEPORT, 1);
  sockaddr_storage storage;
  const socklen_t length = address.toSockaddr(&storage);
  if (!ok || ::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) != 0) return failWith(errno);
  return socket;
}

Result<UdpSocket> UdpSocket::adopt(FileDescriptor bound, const SocketAddress& address) {
  UdpSocket socket(bound.release(), address.ip.isUnspecified());
  if (!socket.setOptions(address.ip.isV4())) return failWith(errno);
  return socket;
}

bool UdpSocket::setOptions(bool is_v4) const {
  enlargeBuffer(fd_, SO_RCVBUF, SO_RCVBUFFORCE, kReceiveBuffer);
  enlargeBuffer(fd_, SO_SNDBUF, SO_SNDBUFFORCE, kSendBuffer);
  // Never fragment an answer by what an ICMP message claims of the path (RFC 9715 §3.1).
  if (is_v4) setOption(fd_, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_OMIT);
  if (!is_v4) setOption(fd_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_OMIT);
  if (!wildcard_) return true;
  return is_v4 ? setOption(fd_, IPPROTO_IP, IP_PKTINFO, 1) : setOption(fd_, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
}

UdpSocket::UdpSocket(UdpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), wildcard_(other.wildcard_) {}

UdpSocket::~UdpSocket() {
  if (fd_ >= 0) ::close(fd_);
}

SocketAddress UdpSocket::localAddress() const {
  sockaddr_storage storage;
  socklen_t length = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(fd_, address, &length) != 0) return {};
  return SocketAddress::fromSockaddr(address).value_or(SocketAddress{});
}

uint64_t UdpSocket::overflowed() const {
  std::array<uint32_t, SK_MEMINFO_VARS> values{};
  socklen_t length = sizeof(values);
  if (getsockopt(fd_, SOL_SOCKET, SO_MEMINFO, values.data(), &length) != 0) return 0;
  return values[SK_MEMINFO_DROPS];
}

void UdpSocket::allowSharing() { setOption(fd_, SOL_SOCKET, SO_REUSEPORT, 1); }

bool UdpSocket::peekFromFirst() const { return setOption(fd_, SOL_SOCKET, SO_PEEK_OFF, 0); }

bool UdpSocket::hasShown() const {
  int offset = -1;
  socklen_t length = sizeof(offset);
  return getsockopt(fd_, SOL_SOCKET, SO_PEEK_OFF, &offset, &length) == 0 && offset > 0;
}

bool UdpSocket::isReadable() const {
  pollfd event{.fd = fd_, .events = POLLIN, .revents = 0};
  return poll(&event, 1, 0) == 1;
}

size_t UdpSocket::sendAll(std::span<mmsghdr> messages) const {
  size_t sent = 0;
  size_t failed = 0;
  while (sent < messages.size()) {
    const int n = sendmmsg(fd_, &messages[sent], static_cast<unsigned>(messages.size() - sent), 0);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {  // never wait for a client: it will ask again
      failed += messages.size() - sent;
      break;
    } else if (errno != EINTR) {  // this one destination: no route, no permission
      ++failed;
      ++sent;
    }
  }
  return failed;
}

UdpBatch::UdpBatch() : buffers_(std::make_unique<Buffer[]>(kCapacity)) {
  for (size_t i = 0; i < kCapacity; ++i) {
    received_[i].msg_hdr.msg_name = &sources_[i];
    received_[i].msg_hdr.msg_iov = &vectors_[i];
    received_[i].msg_hdr.msg_iovlen = 1;
    vectors_[i].iov_base = buffers_[i].data();
  }
}

void UdpBatch::prepare(size_t i, bool with_control) {
  vectors_[i].iov_len = kBufferSize;
  msghdr& header = received_[i].msg_hdr;
  header.msg_namelen = sizeof(sources_[i]);
  header.msg_control = with_control ? &controls_[i] : nullptr;
  header.msg_controllen = with_control ? sizeof(controls_[i]) : 0;
}

void UdpBatch::keepUntilFlush(const UdpSocket& socket) {
  if (taken_out_) return;
  const int flags = socket.hasShown() ? kTake : kPeek;
  if (!socket.peekFromFirst()) return;
  flags_ = flags;
  taken_out_ = std::make_unique<std::array<mmsghdr, kCapacity>>();
}

void UdpBatch::takeHidden(const UdpSocket& socket) {
  if (taken_out_ && socket.isReadable()) takeNext(socket);
}

void UdpBatch::takeNext(const UdpSocket& socket) {
  flags_ = kTake;
  socket.peekFromFirst();
}

size_t UdpBatch::receive(const UdpSocket& socket) {
  for (size_t i = 0; i < received_count_; ++i) prepare(i, socket.isWildcard());
  reply_count_ = 0;
  int n = 0;
  do {
    n = recvmmsg(socket.fd(), received_.data(), kCapacity, flags_, nullptr);
  } while (n < 0 && errno == EINTR);
  received_count_ = n > 0 ? static_cast<size_t>(n) : 0;
  if (flags_ == kPeek) {
    for (mmsghdr& one : std::span(received_).first(received_count_)) {
      one.msg_len = std::min<unsigned>(one.msg_len, kBufferSize);
    }
  }
  if (socket.isWildcard()) {
    for (size_t i = 0; i < received_count_; ++i) keepSourceOnly(received_[i].msg_hdr);
  }
  return received_count_;
}

UdpPeer UdpBatch::peer(size_t i) const {
  UdpPeer peer;
  const msghdr& header = received_[i].msg_hdr;
  peer.source = sources_[i];
  peer.source_size = header.msg_namelen;
  peer.control = controls_[i].bytes;
  peer.control_size = header.msg_control != nullptr ? header.msg_controllen : 0;
  return peer;
}

size_t UdpBatch::flush(const UdpSocket& socket) {
  const size_t failed = socket.sendAll({replies_.data(), reply_count_});
  reply_count_ = 0;
  if (taken_out_) takeOut(socket);
  return failed;
}

// The datagrams that receive() has shown are the first ones in the socket.
void UdpBatch::takeOut(const UdpSocket& socket) {
  if (std::exchange(flags_, kPeek) == kTake) return;
  size_t left = received_count_;
  for (size_t errors = 0; left > 0 && errors < kCapacity;) {
    const int n = recvmmsg(socket.fd(), taken_out_->data(), static_cast<unsigned>(left), kTakeOut, nullptr);
    if (n > 0) left -= static_cast<size_t>(n);
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) ++errors;  // of an answer that was sent: the call has cleared it
  }
  if (left > 0) takeNext(socket);
}

UdpReplies::UdpReplies(EventLoop& loop, std::shared_ptr<const UdpSocket> socket, metrics::Counter& lost)
    : socket_(std::move(socket)), lost_(lost), before_wait_(loop, [this] { flush(); }) {}

UdpReplies::~UdpReplies() { flush(); }

void UdpReplies::add(const UdpPeer& peer, std::span<const uint8_t> message) {
  if (message.size() > kMaxMessage) return lost_.add();
  if (count_ == kCapacity || kRoom - used_ < message.size()) flush();
  if (!batch_) batch_ = std::make_unique<Batch>();
  UdpPeer& copy = batch_->peers[count_];
  copy = peer;
  uint8_t* bytes = batch_->bytes.data() + used_;
  std::memcpy(bytes, message.data(), message.size());
  batch_->vectors[count_] = {.iov_base = bytes, .iov_len = message.size()};
  msghdr& header = batch_->messages[count_].msg_hdr;
  header = {};
  header.msg_name = &copy.source;
  header.msg_namelen = copy.source_size;
  header.msg_iov = &batch_->vectors[count_];
  header.msg_iovlen = 1;
  header.msg_control = copy.control_size > 0 ? copy.control.data() : nullptr;
  header.msg_controllen = copy.control_size;
  ++count_;
  used_ += message.size();
}

void UdpReplies::flush() {
  if (count_ == 0) return;
  lost_.add(socket_->sendAll({batch_->messages.data(), count_}));
  count_ = 0;
  used_ = 0;
}

}  // namespace idetcd::net
