// Datagrams sent from a fresh socket each, as DNS asks of its resolvers (RFC 5452): a random source port, connected, so
// that the kernel lets in what comes from the asked address and port only. Loop thread only.
//
// The sockets of one UdpClients stand behind an epoll instance of their own, which is one descriptor to the loop: to
// open and to close one costs the loop nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ip_address.h"
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
  UdpClients(EventLoop& loop, SecureRandom& random);
  ~UdpClients();
  UdpClients(const UdpClients&) = delete;
  UdpClients& operator=(const UdpClients&) = delete;

  // Sends `datagram` from a new socket into `client`, which is closed first. Returns 0 or errno: then the client is
  // closed. `handler` must outlive the open client.
  int send(const SocketAddress& to, std::span<const uint8_t> datagram, UdpClientHandler& handler, UdpClient& client);
  size_t openCount() const { return open_count_; }

 private:
  friend class UdpClient;
  static constexpr int kMaxEvents = 64;
  static constexpr int kMaxRounds = 8;      // a wake-up: as many answers as the listeners take queries
  static constexpr int kMaxDatagrams = 64;  // a socket and wake-up: whoever floods one must not starve the others
  static constexpr size_t kMaxDatagram = 65535;

  struct Slot {
    int fd = -1;
    uint32_t generation = 0;  // tells a socket from its successor in the slot
    UdpClientHandler* handler = nullptr;
    SocketAddress peer;
  };

  int open(const SocketAddress& to) const;
  int bindRandomly(int fd, int family) const;
  void close(uint32_t slot);
  void onReadable();
  void receive(uint32_t slot, uint32_t generation);
  bool isOpen(uint32_t slot, uint32_t generation) const {
    return slots_[slot].generation == generation && slots_[slot].fd >= 0;
  }

  SecureRandom& random_;
  const bool may_force_;
  uint16_t first_port_;
  uint16_t last_port_;
  int epoll_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  size_t open_count_ = 0;
  std::unique_ptr<uint8_t[]> buffer_;
  std::unique_ptr<ReadWatcher> watcher_;
};

// Whether datagrams to `ip` come back to this machine.
bool isLocalAddress(const IpAddress& ip);

}  // namespace idetcd::net
