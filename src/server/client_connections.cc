#include "server/client_connections.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace idetcd::server {

namespace {

constexpr size_t kV6ClientBytes = 8;  // a /64

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
  client_ = &all_.clients_.try_emplace(key, Client{.address = key, .connections = {}, .in_count = {}}).first->second;
  in_client_ = client_->connections.insert(client_->connections.end(), this);
  in_all_ = all_.by_use_.insert(all_.by_use_.end(), this);
  all_.recount(*client_, client_->connections.size() - 1);
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
  all_.recount(*client, client->connections.size() + 1);
}

// `client` had `before` connections.
void ClientConnections::recount(Client& client, size_t before) {
  const size_t now = client.connections.size();
  if (before > 0) {
    const auto left = by_count_.find(before);
    left->second.erase(client.in_count);
    if (left->second.empty()) by_count_.erase(left);
  }
  if (now == 0) {
    clients_.erase(IpAddress(client.address));
    return;
  }
  Clients& peers = by_count_[now];
  client.in_count = peers.insert(peers.end(), &client);
}

ClientConnections::Connection* ClientConnections::longestIdleOfSame(const Connection& newcomer) const {
  Connection* const idle = newcomer.client_->connections.front();
  return idle != &newcomer ? idle : nullptr;
}

ClientConnections::Connection* ClientConnections::toGiveWay(const Connection& newcomer) const {
  const auto& [most, clients] = *by_count_.rbegin();
  if (newcomer.countOfClient() == most && most > 1) return longestIdleOfSame(newcomer);
  Connection* const idle = most > 1 ? clients.front()->connections.front() : by_use_.front();
  return idle != &newcomer ? idle : nullptr;
}

}  // namespace idetcd::server
