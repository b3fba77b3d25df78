#include "server/write_budget.h"

#include "server/client_connections.h"

namespace idetcd::server {

namespace {

WriteBudget::Room roomIn(size_t used, size_t limit) {
  if (used >= limit) return WriteBudget::Room::kNone;
  return used >= limit / 2 ? WriteBudget::Room::kScarce : WriteBudget::Room::kPlenty;
}

}  // namespace

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
