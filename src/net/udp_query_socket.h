// Datagrams from a fresh random port each (RFC 5452), by a connected socket: the kernel admits only the asked address
// and port. To a loopback address the socket is bound to loopback and not connected, which costs half (1.7 µs, not 3.4
// µs); other senders are ignored. Loop thread only.
//
// A used socket is kept without its port: dissolving the connection frees it, and the next connect(2) or sendto(2)
// draws another. What still waits in it is discarded first: epoll has not reported it readable, or a read has found
// nothing. Each second as many kept sockets are closed as that second did not need. All of one UdpQuerySockets are one
// epoll descriptor to the loop.
#pragma once

#include "base/ip_address.h"
#include "base/random.h"
#include "base/result.h"
#include "net/descriptor_budget.h"
#include "net/event_loop.h"

namespace idetcd::net {

class UdpQuerySockets;

// Either call may destroy the client.
class UdpQueryHandler {
 public:
  virtual ~UdpQueryHandler() = default;
  virtual void onDatagram(std::span<const uint8_t> datagram) = 0;
  // Nothing will come: an ICMP error (ECONNREFUSED, EHOSTUNREACH, …).
  virtual void onError(int error) = 0;
};

// One socket; closed when it is destroyed. Must be gone before its UdpQuerySockets.
class UdpQuerySocket {
 public:
  UdpQuerySocket() = default;
  UdpQuerySocket(UdpQuerySocket&& other) noexcept { *this = std::move(other); }
  UdpQuerySocket& operator=(UdpQuerySocket&& other) noexcept;
  ~UdpQuerySocket() { close(); }

  bool isOpen() const { return clients_ != nullptr; }
  // Sends another datagram from the same port; 0 or errno. REQUIRES: isOpen().
  int sendAgain(std::span<const uint8_t> datagram) const;
  // The address that its datagrams leave from. REQUIRES: isOpen().
  std::optional<IpAddress> localIp() const;
  // New datagrams go to `handler`. REQUIRES: isOpen().
  void handOver(UdpQueryHandler& handler);
  void close();
  // Bytes behind the datagram that onDatagram() shows are readable, uninitialised: kReadSlack of them.
  static constexpr size_t kReadSlack = 16;

 private:
  friend class UdpQuerySockets;
  UdpQuerySockets* clients_ = nullptr;
  uint32_t slot_ = 0;
};

class UdpQuerySockets : private IdleDescriptors {
 public:
  // `account` counts the sockets, and may be null: then they have no bound. Datagrams leave from `source`, if it is
  // given, and then only to addresses of its family. An error if there is no descriptor left.
  static Result<std::unique_ptr<UdpQuerySockets>> make(EventLoop& loop, SecureRandom& random,
                                                       std::shared_ptr<DescriptorAccount> account = nullptr,
                                                       const std::optional<IpAddress>& source = std::nullopt);
  ~UdpQuerySockets() override;
  UdpQuerySockets(const UdpQuerySockets&) = delete;
  UdpQuerySockets& operator=(const UdpQuerySockets&) = delete;

  // Sends `datagram` from a new port into `client`, which is closed first. Returns 0 or errno: then the client is
  // closed; EMFILE if there is no room for a socket. A datagram that is dropped on its way out of this machine counts
  // as sent, and is lost like any other. `handler` must outlive the open client, and so must `held`, which counts the
  // open clients of the sender.
  int send(const SocketAddress& to, std::span<const uint8_t> datagram, UdpQueryHandler& handler, UdpQuerySocket& client,
           size_t* held = nullptr);
  // Sockets without a port, kept for later.
  size_t idleCount() const;

 private:
  friend class UdpQuerySocket;
  static constexpr int kMaxEvents = 64;
  static constexpr int kMaxRounds = 8;      // a wake-up: as many answers as the listeners take queries
  static constexpr int kMaxDatagrams = 64;  // a socket and wake-up: a flood of one must not starve the others
  static constexpr size_t kMaxDatagram = 65535;
  static constexpr size_t kMaxIdle = 256;  // of each family
  static constexpr std::chrono::milliseconds kDecay{1000};

  enum class Kind : uint8_t { kV4, kV6, kV4Loopback, kV6Loopback };
  static constexpr size_t kKinds = 4;
  struct QueryPort {
    int fd = -1;
    uint32_t generation = 0;  // distinguishes a use of the slot from the next one
    Kind kind = Kind::kV4;
    bool has_failed = false;             // an ICMP error, of which something may be left in the socket
    UdpQueryHandler* handler = nullptr;  // null: idle, without a port
    size_t* held = nullptr;
    SocketAddress peer;
  };
  using Slots = std::vector<uint32_t>;
  // Of one kind. Both are used from the back.
  struct Idle {
    Slots empty;
    Slots resting;      // something may wait in them
    size_t asked = 0;   // so many of the front of `resting` were there before epoll was asked
    size_t unused = 0;  // the fewest that there were since the last decay
    size_t size() const { return empty.size() + resting.size(); }
  };

  UdpQuerySockets(EventLoop& loop, SecureRandom& random, std::shared_ptr<DescriptorAccount> account,
                  const std::optional<IpAddress>& source, int epoll);
  Kind kindOf(const IpAddress& to) const;
  int takeSlot(Kind kind, uint32_t& index);
  bool takeIdle(Idle& idle, uint32_t& index);
  int open(Kind kind) const;
  // Whether sockets of the kind are bound to the loopback address, and not connected.
  static bool isBound(Kind kind) { return kind == Kind::kV4Loopback || kind == Kind::kV6Loopback; }
  static int sendFrom(const QueryPort& slot, const SocketAddress& to, std::span<const uint8_t> datagram);
  int sendFirst(const QueryPort& slot, const SocketAddress& to, std::span<const uint8_t> datagram) const;
  int connect(int fd, const SocketAddress& to) const;
  int bindRandomly(int fd, int family) const;
  void close(uint32_t slot);
  void closeDescriptor(uint32_t slot);
  Idle& idleOf(Kind kind) { return idle_[static_cast<size_t>(kind)]; }
  bool mayKeep(const Idle& idle) const;
  void keep(uint32_t slot);
  bool closeIdle() override;
  void decay();
  void decay(Idle& idle);
  void closeOldest(Slots& slots, size_t count);
  void onReadable();
  void settle();
  void receive(uint32_t slot);
  void discardIdle(uint32_t slot);
  bool isOpen(uint32_t slot, uint32_t generation) const {
    return slots_[slot].generation == generation && slots_[slot].handler != nullptr;
  }

  SecureRandom& random_;
  const std::shared_ptr<DescriptorAccount> account_;
  const std::optional<IpAddress> source_;
  const bool may_force_;
  const bool reuses_;
  uint16_t first_port_;
  uint16_t last_port_;
  int epoll_;
  std::vector<QueryPort> slots_;
  Slots free_slots_;  // without a descriptor
  std::array<Idle, kKinds> idle_;
  std::unique_ptr<uint8_t[]> buffer_;
  std::unique_ptr<ReadWatcher> watcher_;
  Timer decay_;  // runs while sockets are kept
  bool decaying_ = false;
};

// Whether datagrams to `ip` come back to this machine. An error if there is no descriptor left to find out.
Result<bool> isLocalAddress(const IpAddress& ip);

}  // namespace idetcd::net
