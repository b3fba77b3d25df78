#include "server/client_connections.h"

#include <iterator>

namespace idetcd::server {

namespace {

constexpr size_t kV6ClientBytes = 8;  // a /64

WriteBudget::Room roomIn(size_t used, size_t limit) {
  if (used >= limit) return WriteBudget::Room::kNone;
  return used >= limit / 2 ? WriteBudget::Room::kScarce : WriteBudget::Room::kPlenty;
}

}  // namespace

IpAddress ClientConnections::clientOf(const IpAddress& address) {
  const IpAddress plain = address.unmapped();
  if (plain.isV4() || plain.isLoopback()) return plain;
  std::array<uint8_t, 16> network{};
  std::copy_n(plain.data(), kV6ClientBytes, network.begin());
  return IpAddress::v6(network);
}

ClientConnections::Connection::Connection(ClientConnections& all, const IpAddress& address) : all_(all) {
  const IpAddress key = clientOf(address);
  client_ = &all_.clients_.try_emplace(key, Client{.address = key, .connections = {}, .by_count = {}}).first->second;
  in_client_ = client_->connections.insert(client_->connections.end(), this);
  in_all_ = all_.by_use_.insert(all_.by_use_.end(), this);
  all_.by_count_.rise(*client_);
}

void ClientConnections::Connection::noteUse() {
  if (client_ == nullptr) return;
  client_->connections.splice(client_->connections.end(), client_->connections, in_client_);
  all_.by_use_.splice(all_.by_use_.end(), all_.by_use_, in_all_);
}

void ClientConnections::Connection::leave() {
  Client* const client = std::exchange(client_, nullptr);
  if (client == nullptr) return;
  client->connections.erase(in_client_);
  all_.by_use_.erase(in_all_);
  all_.by_count_.fall(*client);
  if (client->count == 0) all_.clients_.erase(IpAddress(client->address));
}

ClientConnections::Connection* ClientConnections::longestIdleOfSame(const Connection& newcomer) const {
  Connection* const idle = newcomer.client_->connections.front();
  return idle != &newcomer ? idle : nullptr;
}

ClientConnections::Connection* ClientConnections::toGiveWay(const Connection& newcomer) const {
  const Client& largest = *by_count_.largest();
  if (newcomer.countOfClient() == largest.count && largest.count > 1) return longestIdleOfSame(newcomer);
  Connection* const idle = largest.count > 1 ? largest.connections.front() : by_use_.front();
  return idle != &newcomer ? idle : nullptr;
}

WriteBudget::Client WriteBudget::clientOf(const IpAddress& address) {
  if (!ClientConnections::isOneClient(address)) return std::nullopt;
  return ClientConnections::clientOf(address);
}

void WriteBudget::change(const Client& client, size_t before, size_t now) {
  if (before == now) return;
  total_.fetch_add(now - before, std::memory_order_relaxed);  // wraps where it shrinks
  if (!client) return;
  const std::lock_guard lock(mutex_);
  size_t& queued = clients_[*client];
  queued += now - before;
  if (queued == 0) clients_.erase(*client);
}

WriteBudget::Room WriteBudget::roomOf(const Client& client) const {
  const Room in_process = roomIn(total(), limits_.process);
  if (!client) return in_process;
  const std::lock_guard lock(mutex_);
  const auto it = clients_.find(*client);
  return std::max(in_process, it != clients_.end() ? roomIn(it->second, limits_.client) : Room::kPlenty);
}

}  // namespace idetcd::server
