// The connections of one loop, over all its listeners, by client: which one gives way when there are too many. Loop
// thread only.
//
// Room is shared by max-min fairness: of the client that has most connections the longest idle one is closed, so that
// no client loses one to a client that has more (RFC 7766 §6.2.2, RFC 9210 §4.2). Every operation is logarithmic in the
// number of clients, whatever they do.
#pragma once

#include <list>

#include "base/ip_address.h"
#include "base/ranking.h"

namespace idetcd::server {

class ClientConnections {
  struct Client;

 public:
  // An IPv4 address or an IPv6 /64, which is what one machine can have. On loopback an address stands for all programs
  // of this machine that use it: it is a client as others are when it comes to who gives way, but isOneClient() is
  // false.
  static IpAddress clientOf(const IpAddress& address);
  static bool isOneClient(const IpAddress& address) { return !address.unmapped().isLoopback(); }

  // A base of what the owner knows of a connection. Counts from its construction until leave().
  class Connection {
   public:
    Connection(ClientConnections& all, const IpAddress& address);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // It has just been of use: of all it is now the last that counts as idle.
    void noteUse();
    // It is being closed, or has been.
    void leave();
    // How many the same client has. REQUIRES: leave() was not called.
    size_t countOfClient() const { return client_->count; }

   protected:
    ~Connection() { leave(); }

   private:
    friend class ClientConnections;
    ClientConnections& all_;
    Client* client_ = nullptr;  // null: it has left
    std::list<Connection*>::iterator in_client_;
    std::list<Connection*>::iterator in_all_;
  };

  ClientConnections() = default;
  ClientConnections(const ClientConnections&) = delete;
  ClientConnections& operator=(const ClientConnections&) = delete;

  size_t size() const { return by_use_.size(); }

  // The longest idle one of the client that `newcomer` is of; null: it has no other.
  Connection* longestIdleOfSame(const Connection& newcomer) const;
  // The one that gives way to `newcomer`, which counts already: of the client that has most, which is the newcomer's own
  // if no other has more. Where each has but one, the longest idle of all. Null: there is no other.
  Connection* toGiveWay(const Connection& newcomer) const;

 private:
  struct Client {
    IpAddress address;
    std::list<Connection*> connections;  // longest idle first
    size_t count = 0;                    // of them
    ListLink<Client> by_count;
  };

  std::map<IpAddress, Client> clients_;
  Ranking<Client, &Client::count, &Client::by_count> by_count_;
  std::list<Connection*> by_use_;  // longest idle first
};

// How many bytes of answers wait in this process for clients to read them: in all, and of one client, which is an IPv4
// address or an IPv6 /64. On loopback, where an address does not identify a client, each connection is bounded by
// itself. What the kernel holds is not counted. Shared by all loops; any thread.
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
