// How many bytes of answers wait in this process for clients to read them: in all, and of one client, which is an IPv4
// address or an IPv6 /64. On loopback, where an address does not identify a client, each connection is bounded by
// itself. What the kernel holds is not counted. Shared by all loops; any thread.
#pragma once

#include "base/ip_address.h"

namespace idetcd::server {

class WriteBudget {
 public:
  struct Limits {
    size_t process = size_t{32} << 20;
    size_t client = size_t{4} << 20;
  };
  using Client = std::optional<IpAddress>;  // nothing: on loopback

  WriteBudget() : WriteBudget(Limits{}) {}
  explicit WriteBudget(Limits limits) : limits_(limits) {}

  static Client clientOf(const IpAddress& address);

  // The queue of one connection of `client` changes from `before` to `now`.
  void change(const Client& client, size_t before, size_t now);

  enum class Room : uint8_t {
    kPlenty,
    kScarce,  // half of it is used: for connections that have nothing queued
    kNone,
  };
  Room room(const Client& client) const {
    return total() == 0 ? Room::kPlenty : roomOf(client);  // almost always: a client that reads has nothing queued
  }
  size_t total() const { return total_.load(std::memory_order_relaxed); }

 private:
  Room roomOf(const Client& client) const;

  const Limits limits_;
  std::atomic<size_t> total_{0};  // relaxed: a bound that is a little late is as good
  mutable std::mutex mutex_;
  std::map<IpAddress, size_t> clients_;  // that have anything queued; guarded by mutex_
};

}  // namespace idetcd::server
