#include "http/endpoints.h"

#include <netdb.h>
#include <thread>

#include "net/local_addresses.h"
#include "net/port_holder.h"

namespace idetcd::http {

std::string ListenAddress::toString() const {
  return host.find(':') != host.npos ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<ListenAddress> parseListenAddress(std::string_view text) {
  const auto wrong = [text](std::string_view what) {
    return fail(fmt::format("'{}': {}; write [HOST]:PORT", text, what));
  };
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return wrong("no port");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) return wrong(host.find(']') == host.npos ? "no ']'" : "no port");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return wrong("too many colons in address");
  }
  if (host.find_first_of("[]") != host.npos) return wrong("a bracket that is not expected");
  return ListenAddress{.host = std::string(host), .port = std::string(text.substr(colon + 1))};
}

Result<void> readListenAddress(config::DirectiveCursor& cursor, std::string_view otherwise, ListenAddress& address) {
  const auto words = cursor.args(0, 1);
  if (!words) return tl::unexpected(words.error());
  auto read = parseListenAddress(words->empty() ? otherwise : words->front());
  if (!read) return cursor.error(read.error().message);
  address = std::move(*read);
  return {};
}

Result<std::vector<SocketAddress>> resolve(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const char* const host = address.host.empty() ? nullptr : address.host.c_str();
  const char* const port = address.port.empty() ? "0" : address.port.c_str();
  if (const int error = getaddrinfo(host, port, &hints, &list); error != 0) {
    return fail(fmt::format("{}: {}", address.toString(), gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<SocketAddress> found;
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    if (const auto one = SocketAddress::fromSockaddr(i->ai_addr)) found.push_back(*one);
  }
  if (found.empty()) return fail(fmt::format("{}: no IP address", address.toString()));
  if (host == nullptr) return net::anyAddresses(found.front().port);
  std::stable_partition(found.begin(), found.end(), [](const SocketAddress& one) { return one.ip.isV4(); });
  found.resize(1);
  return found;
}

Result<std::vector<SocketAddress>> Endpoints::add(const ListenAddress& address, const std::string& path,
                                                  const Paths::mapped_type& handler) {
  const auto resolved = resolve(address);
  if (!resolved) return tl::unexpected(resolved.error());
  const std::lock_guard lock(mutex_);
  if (auto started = startServer(); !started) return tl::unexpected(started.error());
  std::vector<SocketAddress> all;
  for (const SocketAddress& one : *resolved) {
    auto listening = listen(one);
    if (!listening) return tl::unexpected(listening.error());
    next_[one][path] = handler;
    all.push_back(*listening);
  }
  return all;
}

Result<void> Endpoints::startServer() {
  if (server_) return {};
  auto server = Server::start();
  if (!server) return tl::unexpected(server.error());
  server_ = std::move(*server);
  return {};
}

Result<void> Endpoints::serveLocally(FileDescriptor bound) {
  const std::lock_guard lock(mutex_);
  if (auto started = startServer(); !started) return started;
  is_local_ = true;
  server_->listenLocally(std::move(bound));
  return {};
}

void Endpoints::addLocally(const std::string& path, Paths::mapped_type handler) {
  const std::lock_guard lock(mutex_);
  if (is_local_) next_local_[path] = std::move(handler);
}

// No event says that another process has closed its socket.
Result<SocketAddress> Endpoints::listen(const SocketAddress& address) {
  constexpr std::chrono::milliseconds kPause{20};
  auto listening = server_->listen(address);
  const pid_t predecessor = process_.predecessor;
  if (!listening && predecessor != 0 && net::isHeldBy(predecessor, "tcp", address)) return address;
  if (!listening && !patience_end_) patience_end_ = BootClock::now() + kStartPatience;
  while (!listening && is_start_ && predecessor == 0 && BootClock::now() < *patience_end_) {
    std::this_thread::sleep_for(kPause);
    listening = server_->listen(address);
  }
  if (!listening) return tl::unexpected(net::listenFailure("tcp", address, listening.error(), "choose another port"));
  return listening;
}

void Endpoints::accept() {
  const std::lock_guard lock(mutex_);
  is_start_ = false;
  used_ = std::exchange(next_, {});
  if (server_) server_->use(used_);
  if (is_local_) server_->useLocal(std::exchange(next_local_, {}));
}

void Endpoints::refuse() {
  const std::lock_guard lock(mutex_);
  next_.clear();
  next_local_.clear();
  if (server_) server_->use(used_);
}

void Endpoints::stop() {
  const std::lock_guard lock(mutex_);
  server_.reset();
  used_.clear();
  next_.clear();
  next_local_.clear();
}

}  // namespace idetcd::http
