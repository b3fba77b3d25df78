// The Forwarders of one loop share these: the sockets of their datagrams, and the room for these and for connections to
// upstreams. Where there is no room left, the tenant with most gives way to one that has at least two fewer. Loop
// thread only.
#pragma once

#include "base/result.h"
#include "net/descriptor_budget.h"
#include "net/event_loop.h"
#include "net/udp_query_socket.h"

namespace idetcd::resolver {

class UpstreamBudget : private net::IdleDescriptors {
 public:
  // A Forwarder, as far as datagrams are concerned.
  class Tenant {
   public:
    virtual ~Tenant() = default;
    // How many sockets wait for answers to its datagrams.
    virtual size_t datagrams() const = 0;
    // Gives up one question and closes its socket. Clients are answered once the loop goes on. False: it cannot.
    virtual bool giveWay() = 0;
  };
  // The connections to one server.
  class Connections {
   public:
    virtual ~Connections() = default;
    virtual size_t connectionCount() const = 0;
    // Closes one that is not in use. False: there is none.
    virtual bool closeIdle() = 0;
    // Closes the one with the fewest questions, which go over to the others, once the loop goes on.
    virtual void closeOne() = 0;
  };

  // An error if there is no descriptor left.
  static Result<std::shared_ptr<UpstreamBudget>> make(net::EventLoop& loop,
                                                   std::shared_ptr<net::DescriptorAccount> account);
  ~UpstreamBudget() override;
  UpstreamBudget(const UpstreamBudget&) = delete;
  UpstreamBudget& operator=(const UpstreamBudget&) = delete;

  net::UdpQuerySockets& udp() { return *udp_; }
  // Those whose datagrams leave from `source`; shared by all who ask for it. An error if there is no descriptor left.
  Result<std::shared_ptr<net::UdpQuerySockets>> udpFrom(const IpAddress& source);
  SecureRandom& random() { return random_; }

  void add(Tenant& tenant) { tenants_.push_back(&tenant); }
  void remove(Tenant& tenant) { std::erase(tenants_, &tenant); }
  void add(Connections& connections) { connections_.push_back(&connections); }
  void remove(Connections& connections) { std::erase(connections_, &connections); }

  // `tenant` needs one socket more. Whether another one has closed one for it.
  bool takeFromOthers(const Tenant& tenant);
  // For one connection more. Empty: there is no room.
  net::DescriptorLease leaseConnection(const Connections& to);

 private:
  UpstreamBudget(net::EventLoop& loop, std::shared_ptr<net::DescriptorAccount> account)
      : loop_(loop), account_(std::move(account)) {}
  bool closeIdle() override;

  net::EventLoop& loop_;
  const std::shared_ptr<net::DescriptorAccount> account_;
  SecureRandom random_;
  std::unique_ptr<net::UdpQuerySockets> udp_;
  std::map<IpAddress, std::weak_ptr<net::UdpQuerySockets>> udp_from_;
  std::vector<Tenant*> tenants_;
  std::vector<Connections*> connections_;
};

}  // namespace idetcd::resolver
