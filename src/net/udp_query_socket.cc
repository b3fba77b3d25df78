#include "net/udp_query_socket.h"

#include <cstdio>
#include <netinet/in.h>
#include <numeric>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace idetcd::net {

namespace {

int familyOf(const IpAddress& ip) { return ip.isV4() ? AF_INET : AF_INET6; }

std::pair<uint16_t, uint16_t> readEphemeralPorts() noexcept {
  constexpr std::pair<uint16_t, uint16_t> kDefault{32768, 60999};
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "re"),
                                                   &std::fclose);
  unsigned first = 0;
  unsigned last = 0;
  if (!file || std::fscanf(file.get(), "%u %u", &first, &last) != 2) return kDefault;
  if (first == 0 || last > 65535 || first > last) return kDefault;
  return {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
}

// The ports set aside for clients: others may belong to a service to come. Read once, before any loop runs.
const std::pair<uint16_t, uint16_t> kEphemeralPorts = readEphemeralPorts();

// Room for a thousand forged datagrams before the true one. It reserves no memory.
constexpr int kUpstreamReceiveBuffer = 1 << 20;

// Whether this process may exceed the system's maximum (CAP_NET_ADMIN).
bool mayForceBuffers() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool may = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kUpstreamReceiveBuffer, sizeof(kUpstreamReceiveBuffer)) == 0;
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

IpAddress loopback(int family) {
  return family == AF_INET ? IpAddress::v4({127, 0, 0, 1})
                           : IpAddress::v6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
}

// Binds to the address, and takes no port yet; 0 or errno.
int bindTo(int fd, const IpAddress& ip) {
  const int one = 1;
  if (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one)) != 0) return errno;
  sockaddr_storage storage;
  const socklen_t length = SocketAddress{.ip = ip}.toSockaddr(&storage);
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0 ? 0 : errno;
}

// Gives the port back. False: the socket is not to be used again.
bool dissolve(int fd) {
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  return ::connect(fd, &nobody, sizeof(nobody)) == 0;
}

bool hasNothingToRead(int fd) {
  uint8_t byte;
  return ::recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

// The kernel has dropped a datagram on its way out, as any router may: a queue is full, or a firewall says so. But the
// kernel reports it, which a router does not.
bool isLoss(int error) { return error == ENOBUFS || error == EPERM; }

}  // namespace

UdpQuerySocket& UdpQuerySocket::operator=(UdpQuerySocket&& other) noexcept {
  if (this == &other) return *this;
  close();
  clients_ = std::exchange(other.clients_, nullptr);
  slot_ = other.slot_;
  return *this;
}

void UdpQuerySocket::close() {
  if (clients_ != nullptr) std::exchange(clients_, nullptr)->close(slot_);
}

int UdpQuerySocket::sendAgain(std::span<const uint8_t> datagram) const {
  assert(isOpen());
  const UdpQuerySockets::QueryPort& slot = clients_->slots_[slot_];
  return UdpQuerySockets::sendFrom(slot, slot.peer, datagram);
}

std::optional<IpAddress> UdpQuerySocket::localIp() const {
  assert(isOpen());
  sockaddr_storage local{};
  socklen_t size = sizeof(local);
  auto* address = reinterpret_cast<sockaddr*>(&local);
  if (getsockname(clients_->slots_[slot_].fd, address, &size) != 0) return std::nullopt;
  return IpAddress::fromSockaddr(address);
}

void UdpQuerySocket::handOver(UdpQueryHandler& handler) {
  assert(isOpen());
  clients_->slots_[slot_].handler = &handler;
}

Result<std::unique_ptr<UdpQuerySockets>> UdpQuerySockets::make(EventLoop& loop, SecureRandom& random,
                                                               std::shared_ptr<DescriptorAccount> account,
                                                               const std::optional<IpAddress>& source) {
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return failWith(errno, "epoll_create1");
  return std::unique_ptr<UdpQuerySockets>(new UdpQuerySockets(loop, random, std::move(account), source, epoll));
}

UdpQuerySockets::UdpQuerySockets(EventLoop& loop, SecureRandom& random, std::shared_ptr<DescriptorAccount> account,
                                 const std::optional<IpAddress>& source, int epoll)
    : random_(random),
      account_(std::move(account)),
      source_(source),
      may_force_(mayForceBuffers()),
      reuses_(kernelDrawsSafely()),
      epoll_(epoll),
      buffer_(std::make_unique<uint8_t[]>(kMaxDatagram + UdpQuerySocket::kReadSlack)),
      watcher_(std::make_unique<ReadWatcher>(loop, epoll, [this] { onReadable(); })),
      decay_(loop, [this] { decay(); }) {
  std::tie(first_port_, last_port_) = kEphemeralPorts;
  if (account_) account_->add(*this, DescriptorUse::kDatagram);
}

UdpQuerySockets::~UdpQuerySockets() {
  if (account_) account_->remove(*this);
  watcher_.reset();
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].fd >= 0) closeDescriptor(i);
  }
  ::close(epoll_);
}

int UdpQuerySockets::send(const SocketAddress& to, std::span<const uint8_t> datagram, UdpQueryHandler& handler,
                          UdpQuerySocket& client, size_t* held) {
  client.close();
  uint32_t index = 0;
  if (const int error = takeSlot(kindOf(to.ip), index); error != 0) return error;
  QueryPort& slot = slots_[index];
  if (const int error = sendFirst(slot, to, datagram); error != 0) {
    closeDescriptor(index);
    return error;
  }
  slot.handler = &handler;
  slot.peer = to;
  slot.held = held;
  if (held != nullptr) ++*held;
  client.clients_ = this;
  client.slot_ = index;
  return 0;
}

UdpQuerySockets::Kind UdpQuerySockets::kindOf(const IpAddress& to) const {
  if (reuses_ && !source_ && to.isLoopback()) return to.isV4() ? Kind::kV4Loopback : Kind::kV6Loopback;
  return to.isV4() ? Kind::kV4 : Kind::kV6;
}

// From a new port; 0 or errno.
int UdpQuerySockets::sendFirst(const QueryPort& slot, const SocketAddress& to, std::span<const uint8_t> datagram) const {
  if (!isBound(slot.kind)) {
    if (const int error = connect(slot.fd, to); error != 0) return error;
  }
  return sendFrom(slot, to, datagram);
}

// 0 or errno. REQUIRES: the socket is connected to `to`, or is to draw a port by this.
int UdpQuerySockets::sendFrom(const QueryPort& slot, const SocketAddress& to, std::span<const uint8_t> datagram) {
  sockaddr_storage storage;
  const bool names_peer = isBound(slot.kind);
  const socklen_t length = names_peer ? to.toSockaddr(&storage) : 0;
  const auto* peer = names_peer ? reinterpret_cast<const sockaddr*>(&storage) : nullptr;
  const ssize_t sent = ::sendto(slot.fd, datagram.data(), datagram.size(), MSG_DONTWAIT, peer, length);
  return sent < 0 && !isLoss(errno) ? errno : 0;
}

// A slot with a socket that has no port yet; 0 or errno.
int UdpQuerySockets::takeSlot(Kind kind, uint32_t& index) {
  if (takeIdle(idleOf(kind), index)) return 0;
  const int fd = open(kind);
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
    if (account_) account_->give(DescriptorUse::kDatagram);
    return error;
  }
  free_slots_.pop_back();
  slots_[index].fd = fd;
  slots_[index].kind = kind;
  slots_[index].has_failed = false;
  return 0;
}

bool UdpQuerySockets::takeIdle(Idle& idle, uint32_t& index) {
  while (idle.size() > 0) {
    const bool is_empty = !idle.empty.empty();
    Slots& slots = is_empty ? idle.empty : idle.resting;
    index = slots.back();
    slots.pop_back();
    idle.asked = std::min(idle.asked, idle.resting.size());
    idle.unused = std::min(idle.unused, idle.size());
    if (is_empty || hasNothingToRead(slots_[index].fd)) return true;
    closeDescriptor(index);
  }
  return false;
}

// A socket, or -errno.
int UdpQuerySockets::open(Kind kind) const {
  const int family = kind == Kind::kV4 || kind == Kind::kV4Loopback ? AF_INET : AF_INET6;
  if (account_ && !account_->take(DescriptorUse::kDatagram)) return -EMFILE;
  const int fd = ::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int error = fd < 0 ? errno : 0;
  if (error == 0 && isBound(kind)) error = bindTo(fd, loopback(family));
  if (error == 0 && reuses_ && source_) error = bindTo(fd, *source_);
  if (error != 0) {
    if (fd >= 0) ::close(fd);
    if (account_) account_->give(DescriptorUse::kDatagram);
    return -error;
  }
  reportErrors(fd, family);
  setsockopt(fd, SOL_SOCKET, may_force_ ? SO_RCVBUFFORCE : SO_RCVBUF, &kUpstreamReceiveBuffer, sizeof(kUpstreamReceiveBuffer));
  return fd;
}

// 0 or errno.
int UdpQuerySockets::connect(int fd, const SocketAddress& to) const {
  if (!reuses_) {
    if (const int error = bindRandomly(fd, familyOf(to.ip)); error != 0) return error;
  }
  sockaddr_storage storage;
  const socklen_t length = to.toSockaddr(&storage);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0 ? 0 : errno;
}

// 0 or errno. Where random ports are taken again and again, the kernel looks for a free one, at random too.
int UdpQuerySockets::bindRandomly(int fd, int family) const {
  constexpr int kTries = 8;
  SocketAddress address{.ip = source_ ? *source_ : family == AF_INET ? IpAddress::v4({}) : IpAddress::v6({})};
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

void UdpQuerySockets::close(uint32_t index) {
  QueryPort& slot = slots_[index];
  slot.handler = nullptr;
  ++slot.generation;
  if (size_t* const held = std::exchange(slot.held, nullptr); held != nullptr) --*held;
  if (!slot.has_failed && mayKeep(idleOf(slot.kind)) && dissolve(slot.fd)) {
    keep(index);
  } else {
    closeDescriptor(index);
  }
}

bool UdpQuerySockets::mayKeep(const Idle& idle) const {
  if (!reuses_ || idle.size() >= kMaxIdle) return false;
  return !account_ || idleCount() < account_->maxIdle();
}

void UdpQuerySockets::keep(uint32_t index) {
  idleOf(slots_[index].kind).resting.push_back(index);
  if (std::exchange(decaying_, true)) return;
  decay_.start(kDecay, kDecay);
}

size_t UdpQuerySockets::idleCount() const {
  return std::accumulate(idle_.begin(), idle_.end(), size_t{0},
                         [](size_t sum, const Idle& i) { return sum + i.size(); });
}

// One of the kind that has most.
bool UdpQuerySockets::closeIdle() {
  Idle& idle =
      *std::max_element(idle_.begin(), idle_.end(), [](const Idle& a, const Idle& b) { return a.size() < b.size(); });
  if (idle.size() == 0) return false;
  closeOldest(idle.empty.empty() ? idle.resting : idle.empty, 1);
  idle.asked = std::min(idle.asked, idle.resting.size());
  idle.unused = std::min(idle.unused, idle.size());
  return true;
}

void UdpQuerySockets::decay() {
  for (Idle& idle : idle_) decay(idle);
  if (idleCount() > 0) return;
  decaying_ = false;
  decay_.stop();
}

void UdpQuerySockets::decay(Idle& idle) {
  const size_t of_empty = std::min(idle.unused, idle.empty.size());
  closeOldest(idle.empty, of_empty);
  closeOldest(idle.resting, idle.unused - of_empty);
  idle.asked = 0;
  idle.unused = idle.size();
}

void UdpQuerySockets::closeOldest(Slots& slots, size_t count) {
  const auto end = slots.begin() + static_cast<ptrdiff_t>(count);
  std::for_each(slots.begin(), end, [this](uint32_t index) { closeDescriptor(index); });
  slots.erase(slots.begin(), end);
}

void UdpQuerySockets::closeDescriptor(uint32_t index) {
  ::close(slots_[index].fd);  // leaves the epoll instance with it
  if (account_) account_->give(DescriptorUse::kDatagram);
  slots_[index].fd = -1;
  free_slots_.push_back(index);
}

void UdpQuerySockets::onReadable() {
  std::array<epoll_event, kMaxEvents> events;
  for (int round = 0; round < kMaxRounds; ++round) {
    for (Idle& idle : idle_) idle.asked = idle.resting.size();
    const int count = epoll_wait(epoll_, events.data(), kMaxEvents, 0);
    for (int i = 0; i < count; ++i) receive(events[static_cast<size_t>(i)].data.u32);
    if (count == kMaxEvents) continue;  // others may be readable too
    if (count >= 0) settle();
    return;
  }
}

// Nothing waits in those that were there when epoll named all that can be read, and are there still.
void UdpQuerySockets::settle() {
  for (Idle& idle : idle_) {
    const auto end = idle.resting.begin() + static_cast<ptrdiff_t>(idle.asked);
    idle.empty.insert(idle.empty.end(), idle.resting.begin(), end);
    idle.resting.erase(idle.resting.begin(), end);
    idle.asked = 0;
  }
}

// Something has come to a socket that is kept for later: it is discarded unread.
void UdpQuerySockets::discardIdle(uint32_t index) {
  Idle& idle = idleOf(slots_[index].kind);
  const auto at = std::find(idle.resting.begin(), idle.resting.end(), index);
  if (at != idle.resting.end()) {
    if (static_cast<size_t>(at - idle.resting.begin()) < idle.asked) --idle.asked;
    idle.resting.erase(at);
  } else if (std::erase(idle.empty, index) == 0) {
    return;
  }
  idle.unused = std::min(idle.unused, idle.size());
  closeDescriptor(index);
}

// The event may be a former user's of the slot: then there is nothing to read, or something that is the present one's.
void UdpQuerySockets::receive(uint32_t index) {
  if (slots_[index].handler == nullptr) return discardIdle(index);
  const uint32_t generation = slots_[index].generation;
  for (int i = 0; i < kMaxDatagrams && isOpen(index, generation); ++i) {
    QueryPort& slot = slots_[index];
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
    // A socket that is not connected takes what comes from anywhere, and so does one between bind and connect.
    const auto from = SocketAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&source));
    if (!from || from->ip != slot.peer.ip || from->port != slot.peer.port) continue;
    slot.handler->onDatagram({buffer_.get(), static_cast<size_t>(size)});
  }
}

// The kernel binds a socket to addresses of its own only.
Result<bool> isLocalAddress(const IpAddress& ip) {
  if (ip.isLoopback() || ip.isUnspecified()) return true;
  const int fd = ::socket(familyOf(ip), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 && isWantOfResources(errno)) return failWith(errno);
  if (fd < 0) return false;
  sockaddr_storage storage;
  const socklen_t length = SocketAddress{.ip = ip}.toSockaddr(&storage);
  const bool local =
      !ip.isLinkLocal() && ::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0;  // those need a scope
  ::close(fd);
  return local;
}

}  // namespace idetcd::net
