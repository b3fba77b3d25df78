#include "service/socket_store.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "base/result.h"

namespace idetcd::service {
namespace {

constexpr std::string_view kPrefix = "dns-";
constexpr std::chrono::milliseconds kRemoval{1000};

std::string_view textOf(SocketPlace::Kind kind) { return kind == SocketPlace::Kind::kUdp ? "udp" : "tcp"; }

std::optional<int> option(int fd, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  if (getsockopt(fd, level, name, &value, &size) != 0) return std::nullopt;
  return value;
}

std::optional<SocketAddress> addressOf(int fd) {
  sockaddr_storage storage;
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(fd, address, &size) != 0) return std::nullopt;
  return SocketAddress::fromSockaddr(address);
}

Result<SocketPlace::Kind> kindOf(int fd) {
  const auto type = option(fd, SOL_SOCKET, SO_TYPE);
  if (type == SOCK_DGRAM) return SocketPlace::Kind::kUdp;
  if (type == SOCK_STREAM && option(fd, SOL_SOCKET, SO_ACCEPTCONN) == 1) return SocketPlace::Kind::kTcp;
  return fail("it is neither a socket for UDP nor one that listens for TCP");
}

// Or, otherwise, of a socket unit.
bool isStored(std::string_view name) { return name.starts_with(kPrefix); }

bool isNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace

std::string SocketPlace::name() const {
  std::string name = fmt::format("{}{}-{}-{}", kPrefix, textOf(kind), address.toString(), worker);
  if (address.scope_id != 0) name += fmt::format("-{}", address.scope_id);
  std::ranges::replace(name, ':', '_');
  return name;
}

SocketStore::SocketStore(std::vector<GivenDescriptor> given, Manager& manager, Logger log)
    : manager_(manager), log_(std::move(log)) {
  for (GivenDescriptor& one : given) add(std::move(one));
}

void SocketStore::add(GivenDescriptor given) {
  const int fd = given.fd.get();
  const auto address = addressOf(fd);
  const auto kind = kindOf(fd);
  if (!address) return discard(given.name, "it has no IP address");
  if (!kind) return discard(given.name, kind.error().message);
  // One for both families would get what the socket for IPv4 is for.
  if (address->ip.isV6() && option(fd, IPPROTO_IPV6, IPV6_V6ONLY) != 1) {
    return discard(given.name, "it takes IPv4 as well; a socket unit needs BindIPv6Only=ipv6-only");
  }
  if (!isNonBlocking(fd)) return discard(given.name, "it cannot be made non-blocking");
  given_.push_back({.fd = std::move(given.fd), .name = std::move(given.name), .kind = *kind, .address = *address});
}

void SocketStore::discard(const std::string& name, const std::string& what) {
  log_.warning("The socket \"{}\" of the service manager is closed: {}", name, what);
  if (!isStored(name)) return;
  manager_.remove(name);
  removed_ = true;
}

void SocketStore::closeAllBut(const std::vector<SocketPlace>& wanted) {
  std::vector<SocketPlace> open = wanted;  // each takes one socket
  std::vector<Socket> kept;
  for (Socket& socket : given_) {
    const auto place = std::ranges::find_if(open, [&socket](const SocketPlace& one) {
      return one.kind == socket.kind && one.address == socket.address;
    });
    if (place == open.end()) {
      discard(socket.name, fmt::format("no server block wants {} {}", textOf(socket.kind), socket.address.toString()));
      continue;
    }
    open.erase(place);
    kept.push_back(std::move(socket));
  }
  given_ = std::move(kept);
  awaitRemoval();
}

bool SocketStore::has(const SocketAddress& address) const {
  return std::ranges::any_of(given_, [&address](const Socket& socket) { return socket.address == address; });
}

FileDescriptor SocketStore::take(const SocketPlace& place) {
  const auto fits = [&place](const Socket& socket) {
    return socket.kind == place.kind && socket.address == place.address;
  };
  const std::string name = place.name();
  auto found = std::ranges::find_if(given_, [&](const Socket& socket) { return fits(socket) && socket.name == name; });
  if (found == given_.end()) found = std::ranges::find_if(given_, fits);
  if (found == given_.end()) return {};
  FileDescriptor fd = std::move(found->fd);
  kept_[name] = {.stored = isStored(found->name) ? found->name : "", .fd = fd.get()};
  given_.erase(found);
  return fd;
}

std::vector<OwnDescriptor> SocketStore::kept() const {
  std::vector<OwnDescriptor> all;
  for (const auto& [name, kept] : kept_) all.push_back({.fd = kept.fd, .name = name});
  return all;
}

void SocketStore::keep(const SocketPlace& place, int fd) {
  std::string name = place.name();
  if (place.address.port == 0 || !kept_.emplace(name, Kept{.stored = name, .fd = fd}).second) return;
  manager_.store(fd, name);
}

bool SocketStore::outlivesProcess(const SocketPlace& place) const {
  const auto kept = kept_.find(place.name());
  return kept != kept_.end() && (manager_.exists() || kept->second.stored.empty());
}

void SocketStore::remove(const SocketPlace& place) {
  const auto kept = kept_.find(place.name());
  if (kept == kept_.end()) return;
  if (!kept->second.stored.empty()) {
    manager_.remove(kept->second.stored);
    removed_ = true;
  }
  kept_.erase(kept);
}

void SocketStore::awaitRemoval() {
  if (std::exchange(removed_, false)) manager_.barrier(kRemoval);
}

}  // namespace idetcd::service
