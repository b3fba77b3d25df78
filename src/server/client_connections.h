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

}  // namespace idetcd::server
