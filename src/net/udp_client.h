// Datagrams sent from a fresh random port each, as DNS asks of its resolvers (RFC 5452), by a connected socket, so that
// the kernel lets in what comes from the asked address and port only. Loop thread only.
//
// A socket that has done its duty is kept for the next datagram, but not its port: dissolving the connection gives the
// port back, and the next connect(2) draws another one. In between the socket has no port at all, and nothing can reach
// it. That is half as expensive as to make, set up, watch and close a new one. The sockets of one UdpClients stand
// behind an epoll instance of their own, which is one descriptor to the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ip_address.h"
#include "net/descriptor_budget.h"
#include "net/event_loop.h"
#include "net/secure_random.h"

namespace idetcd::net {

class UdpClients;

// Either call may destroy the client.
class UdpClientHandler {
 public:
  virtual ~UdpClientHandler() = default;
  virtual void onDatagram(std::span<const uint8_t> datagram) = 0;
  // Nothing will come: an ICMP error (ECONNREFUSED, EHOSTUNREACH, …).
  virtual void onError(int error) = 0;
};

// One socket; closed when it is destroyed. Must be gone before its UdpClients.
class UdpClient {
 public:
  UdpClient() = default;
  UdpClient(UdpClient&& other) noexcept { *this = std::move(other); }
  UdpClient& operator=(UdpClient&& other) noexcept;
  ~UdpClient() { close(); }

  bool isOpen() const { return clients_ != nullptr; }
  // Sends another datagram from the same port; 0 or errno. REQUIRES: isOpen().
  int sendAgain(std::span<const uint8_t> datagram) const;
  // What comes from now on is `handler`'s. REQUIRES: isOpen().
  void handOver(UdpClientHandler& handler);
  void close();
  // Octets behind the datagram that onDatagram() shows are readable, uninitialised: kReadSlack of them.
  static constexpr size_t kReadSlack = 16;

 private:
  friend class UdpClients;
  UdpClients* clients_ = nullptr;
  uint32_t slot_ = 0;
};

class UdpClients {
 public:
  // `budget` counts the sockets, and may be null: then they have no bound.
  UdpClients(EventLoop& loop, SecureRandom& random, std::shared_ptr<DescriptorBudget> budget = nullptr);
  ~UdpClients();
  UdpClients(const UdpClients&) = delete;
  UdpClients& operator=(const UdpClients&) = delete;

  // Sends `datagram` from a new port into `client`, which is closed first. Returns 0 or errno: then the client is
  // closed; EMFILE if the budget is used up. `handler` must outlive the open client.
  int send(const SocketAddress& to, std::span<const uint8_t> datagram, UdpClientHandler& handler, UdpClient& client);
  size_t openCount() const { return open_count_; }  // without those that are kept for later

 private:
  friend class UdpClient;
  static constexpr int kMaxEvents = 64;
  static constexpr int kMaxRounds = 8;      // a wake-up: as many answers as the listeners take queries
  static constexpr int kMaxDatagrams = 64;  // a socket and wake-up: whoever floods one must not starve the others
  static constexpr size_t kMaxDatagram = 65535;
  static constexpr size_t kMaxIdle = 256;  // of each family

  struct Slot {
    int fd = -1;
    uint32_t generation = 0;  // tells a use of the slot from the next one
    bool is_v4 = true;
    bool has_failed = false;              // an ICMP error, of which something may be left in the socket
    UdpClientHandler* handler = nullptr;  // null: idle, without a port
    SocketAddress peer;
  };
  using Slots = std::vector<uint32_t>;

  int takeSlot(int family, uint32_t& index);
  int open(int family) const;
  int connect(int fd, const SocketAddress& to) const;
  int bindRandomly(int fd, int family) const;
  void close(uint32_t slot);
  static bool releasePort(int fd);
  void closeDescriptor(uint32_t slot);
  Slots& idleOf(bool is_v4) { return is_v4 ? idle_v4_ : idle_v6_; }
  void onReadable();
  void receive(uint32_t slot);
  void discardIdle(uint32_t slot);
  bool isOpen(uint32_t slot, uint32_t generation) const {
    return slots_[slot].generation == generation && slots_[slot].handler != nullptr;
  }

  SecureRandom& random_;
  const std::shared_ptr<DescriptorBudget> budget_;
  const bool may_force_;
  const bool reuses_;
  uint16_t first_port_;
  uint16_t last_port_;
  int epoll_;
  std::vector<Slot> slots_;
  Slots free_slots_;  // without a descriptor
  Slots idle_v4_;
  Slots idle_v6_;
  size_t open_count_ = 0;
  std::unique_ptr<uint8_t[]> buffer_;
  std::unique_ptr<ReadWatcher> watcher_;
};

// Whether datagrams to `ip` come back to this machine.
bool isLocalAddress(const IpAddress& ip);

}  // namespace idetcd::net
