#include "net/udp_client.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <utility>

namespace idetcd::net {

namespace {

int familyOf(const IpAddress& ip) { return ip.isV4() ? AF_INET : AF_INET6; }

// The ports that the machine's owner has set aside for clients: a port outside might be one that a service is about to
// listen on.
std::pair<uint16_t, uint16_t> ephemeralPorts() {
  constexpr std::pair<uint16_t, uint16_t> kDefault{32768, 60999};
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "re"),
                                                   &std::fclose);
  unsigned first = 0;
  unsigned last = 0;
  if (!file || std::fscanf(file.get(), "%u %u", &first, &last) != 2) return kDefault;
  if (first == 0 || last > 65535 || first > last) return kDefault;
  return {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

// Room for a thousand forged datagrams, so that the true one behind them is not lost before we look. Nothing is set
// aside for it.
constexpr int kReceiveBuffer = 1 << 20;

// Whether this process may exceed the system's maximum (CAP_NET_ADMIN).
bool mayForceBuffers() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool may = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBuffer, sizeof(kReceiveBuffer)) == 0;
  if (fd >= 0) ::close(fd);
  return may;
}

// Whether connect(2) draws ports from the kernel's cryptographic generator, as it does since Linux 6.1. Before, we draw
// them ourselves, for a new socket each: only bind(2) takes a port, and what it took connect(2) does not give back.
bool kernelDrawsSafely() {
  utsname system{};
  unsigned major = 0;
  unsigned minor = 0;
  if (::uname(&system) != 0 || std::sscanf(system.release, "%u.%u", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 1);
}

// ICMP errors that are no certain end (host unreachable, say) are reported too: there is another server to ask.
void reportErrors(int fd, int family) {
  const int one = 1;
  if (family == AF_INET) setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof(one));
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof(one));
}

}  // namespace

UdpClient& UdpClient::operator=(UdpClient&& other) noexcept {
  if (this == &other) return *this;
  close();
  clients_ = std::exchange(other.clients_, nullptr);
  slot_ = other.slot_;
  return *this;
}

void UdpClient::close() {
  if (clients_ != nullptr) std::exchange(clients_, nullptr)->close(slot_);
}

int UdpClient::sendAgain(std::span<const uint8_t> datagram) const {
  const int fd = clients_->slots_[slot_].fd;
  return ::send(fd, datagram.data(), datagram.size(), MSG_DONTWAIT) < 0 ? errno : 0;
}

void UdpClient::handOver(UdpClientHandler& handler) { clients_->slots_[slot_].handler = &handler; }

UdpClients::UdpClients(EventLoop& loop, SecureRandom& random, std::shared_ptr<DescriptorBudget> budget)
    : random_(random),
      budget_(std::move(budget)),
      may_force_(mayForceBuffers()),
      reuses_(kernelDrawsSafely()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      buffer_(std::make_unique<uint8_t[]>(kMaxDatagram + UdpClient::kReadSlack)) {
  if (epoll_ < 0) throw std::runtime_error(std::string("epoll_create1: ") + std::strerror(errno));
  std::tie(first_port_, last_port_) = ephemeralPorts();
  watcher_ = std::make_unique<ReadWatcher>(loop, epoll_, [this] { onReadable(); });
}

UdpClients::~UdpClients() {
  watcher_.reset();
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].fd >= 0) closeDescriptor(i);
  }
  ::close(epoll_);
}

int UdpClients::send(const SocketAddress& to, std::span<const uint8_t> datagram, UdpClientHandler& handler,
                     UdpClient& client) {
  client.close();
  uint32_t index = 0;
  if (const int error = takeSlot(familyOf(to.ip), index); error != 0) return error;
  Slot& slot = slots_[index];
  int error = connect(slot.fd, to);
  if (error == 0 && ::send(slot.fd, datagram.data(), datagram.size(), MSG_DONTWAIT) < 0) error = errno;
  if (error != 0) {
    closeDescriptor(index);
    return error;
  }
  slot.handler = &handler;
  slot.peer = to;
  ++open_count_;
  client.clients_ = this;
  client.slot_ = index;
  return 0;
}

// A slot with a socket that has no port yet; 0 or errno.
int UdpClients::takeSlot(int family, uint32_t& index) {
  if (Slots& idle = idleOf(family == AF_INET); !idle.empty()) {
    index = idle.back();
    idle.pop_back();
    return 0;
  }
  const int fd = open(family);
  if (fd < 0) return -fd;
  if (free_slots_.empty()) {
    slots_.emplace_back();
    free_slots_.push_back(static_cast<uint32_t>(slots_.size() - 1));
  }
  index = free_slots_.back();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = index;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    ::close(fd);
    if (budget_) budget_->give();
    return error;
  }
  free_slots_.pop_back();
  slots_[index].fd = fd;
  slots_[index].is_v4 = family == AF_INET;
  slots_[index].has_failed = false;
  return 0;
}

// A socket, or -errno.
int UdpClients::open(int family) const {
  if (budget_ && !budget_->take()) return -EMFILE;
  const int fd = ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    const int error = errno;
    if (budget_) budget_->give();
    return -error;
  }
  reportErrors(fd, family);
  setsockopt(fd, SOL_SOCKET, may_force_ ? SO_RCVBUFFORCE : SO_RCVBUF, &kReceiveBuffer, sizeof(kReceiveBuffer));
  return fd;
}

// 0 or errno.
int UdpClients::connect(int fd, const SocketAddress& to) const {
  if (!reuses_) {
    if (const int error = bindRandomly(fd, familyOf(to.ip)); error != 0) return error;
  }
  sockaddr_storage storage;
  const socklen_t length = to.toSockaddr(&storage);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0 ? 0 : errno;
}

// 0 or errno. Where random ports are taken again and again, the kernel looks for a free one, at random too.
int UdpClients::bindRandomly(int fd, int family) const {
  constexpr int kTries = 8;
  SocketAddress address{.ip = family == AF_INET ? IpAddress::v4({}) : IpAddress::v6({})};
  const uint32_t count = uint32_t{last_port_} - first_port_ + 1;
  int error = EADDRINUSE;
  for (int i = 0; i <= kTries && (error == EADDRINUSE || error == EACCES); ++i) {
    address.port = i < kTries ? static_cast<uint16_t>(first_port_ + random_.below(count)) : uint16_t{0};
    sockaddr_storage storage;
    const socklen_t length = address.toSockaddr(&storage);
    error = ::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0 ? 0 : errno;
  }
  return error;
}

void UdpClients::close(uint32_t index) {
  Slot& slot = slots_[index];
  slot.handler = nullptr;
  ++slot.generation;
  --open_count_;
  Slots& idle = idleOf(slot.is_v4);
  if (reuses_ && !slot.has_failed && idle.size() < kMaxIdle && releasePort(slot.fd)) {
    idle.push_back(index);
  } else {
    closeDescriptor(index);
  }
}

// Leaves a socket that nothing can reach and in which nothing waits to be read by its next user. False: it does not.
bool UdpClients::releasePort(int fd) {
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  if (::connect(fd, &nobody, sizeof(nobody)) != 0) return false;
  for (int i = 0; i < kMaxDatagrams; ++i) {
    uint8_t octet;
    if (::recv(fd, &octet, sizeof(octet), MSG_DONTWAIT) < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
  }
  return false;
}

void UdpClients::closeDescriptor(uint32_t index) {
  ::close(slots_[index].fd);  // leaves the epoll instance with it
  if (budget_) budget_->give();
  slots_[index].fd = -1;
  free_slots_.push_back(index);
}

void UdpClients::onReadable() {
  std::array<epoll_event, kMaxEvents> events;
  for (int round = 0; round < kMaxRounds; ++round) {
    const int count = epoll_wait(epoll_, events.data(), kMaxEvents, 0);
    for (int i = 0; i < count; ++i) receive(events[static_cast<size_t>(i)].data.u32);
    if (count < kMaxEvents) return;
  }
}

// Something has come to a socket that is kept for later: what, nobody wants to know.
void UdpClients::discardIdle(uint32_t index) {
  if (std::erase(idleOf(slots_[index].is_v4), index) > 0) closeDescriptor(index);
}

// The event may be a former user's of the slot: then there is nothing to read, or something that is the present one's.
void UdpClients::receive(uint32_t index) {
  if (slots_[index].handler == nullptr) return discardIdle(index);
  const uint32_t generation = slots_[index].generation;
  for (int i = 0; i < kMaxDatagrams && isOpen(index, generation); ++i) {
    Slot& slot = slots_[index];
    sockaddr_storage source{};
    socklen_t source_size = sizeof(source);
    const ssize_t size = recvfrom(slot.fd, buffer_.get(), kMaxDatagram, MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&source), &source_size);
    if (size < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      slot.has_failed = true;
      return slot.handler->onError(errno);
    }
    // Between bind and connect anybody could have sent something.
    const auto from = SocketAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&source));
    if (!from || from->ip != slot.peer.ip || from->port != slot.peer.port) continue;
    slot.handler->onDatagram({buffer_.get(), static_cast<size_t>(size)});
  }
}

// The kernel binds a socket to addresses of its own only.
bool isLocalAddress(const IpAddress& ip) {
  if (ip.isLoopback() || ip.isUnspecified()) return true;
  const int fd = ::socket(familyOf(ip), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_storage storage;
  const socklen_t length = SocketAddress{.ip = ip}.toSockaddr(&storage);
  const bool local =
      !ip.isLinkLocal() && ::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0;  // those need a scope
  ::close(fd);
  return local;
}

}  // namespace idetcd::net
