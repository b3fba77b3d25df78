#include "resolver/upstream_budget.h"

#include "base/ranking.h"

namespace idetcd::resolver {

namespace {

// The one with most, if that is worth being shared with one that has `few`.
template <typename T>
T* largest(const std::vector<T*>& all, size_t (T::*size)() const, size_t few) {
  const auto most =
      std::max_element(all.begin(), all.end(), [size](const T* a, const T* b) { return (a->*size)() < (b->*size)(); });
  return most != all.end() && givesWay(((*most)->*size)(), few) ? *most : nullptr;
}

}  // namespace

Result<std::shared_ptr<UpstreamBudget>> UpstreamBudget::make(net::EventLoop& loop,
                                                       std::shared_ptr<net::DescriptorAccount> account) {
  std::shared_ptr<UpstreamBudget> room(new UpstreamBudget(loop, std::move(account)));
  auto udp = net::UdpQuerySockets::make(loop, room->random_, room->account_);
  if (!udp) return tl::unexpected(udp.error());
  room->udp_ = std::move(*udp);
  room->account_->add(*room, net::DescriptorUse::kUpstream);
  return room;
}

Result<std::shared_ptr<net::UdpQuerySockets>> UpstreamBudget::udpFrom(const IpAddress& source) {
  std::weak_ptr<net::UdpQuerySockets>& known = udp_from_[source];
  if (auto sockets = known.lock()) return sockets;
  auto made = net::UdpQuerySockets::make(loop_, random_, account_, source);
  if (!made) return tl::unexpected(made.error());
  std::shared_ptr<net::UdpQuerySockets> sockets(std::move(*made));
  known = sockets;
  return sockets;
}

UpstreamBudget::~UpstreamBudget() { account_->remove(*this); }

bool UpstreamBudget::takeFromOthers(const Tenant& tenant) {
  Tenant* most = largest(tenants_, &Tenant::datagrams, tenant.datagrams());
  return most != nullptr && most->giveWay();
}

net::DescriptorLease UpstreamBudget::leaseConnection(const Connections& to) {
  auto lease = account_->lease(net::DescriptorUse::kUpstream);
  if (lease) return lease;
  Connections* most = largest(connections_, &Connections::connectionCount, to.connectionCount());
  if (most == nullptr) return lease;
  most->closeOne();
  return account_->lease(net::DescriptorUse::kUpstream);
}

bool UpstreamBudget::closeIdle() {
  return std::any_of(connections_.begin(), connections_.end(), [](Connections* c) { return c->closeIdle(); });
}

}  // namespace idetcd::resolver
