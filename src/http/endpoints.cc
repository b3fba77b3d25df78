#include "http/endpoints.h"

#include <thread>

#include "net/port_holder.h"

namespace idetcd::http {

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
Result<SocketAddress> Endpoints::listen(const SocketAddress& address) const {
  constexpr std::chrono::milliseconds kPause{20};
  const auto end = std::chrono::steady_clock::now() + kStartPatience;
  auto listening = server_->listen(address);
  while (!listening && is_start_ && std::chrono::steady_clock::now() < end) {
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
