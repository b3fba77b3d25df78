#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/executor.h"
#include "etcd/acceptor_internal.h"

namespace idetcd::etcd {
namespace {

using namespace std::chrono_literals;

// How often it is looked for connections that have been closed, where there are as many as may be.
constexpr std::chrono::nanoseconds kLookPause = 100ms;
// Where there is no descriptor left, a connection waits.
constexpr std::chrono::milliseconds kNoDescriptorPause = 100ms;

Error systemError(std::string_view what) {
  return {fmt::format("{}: {}", what, std::generic_category().message(errno)), ErrorCode::kOther};
}

void setOption(int fd, int level, int option) {
  const int on = 1;
  ::setsockopt(fd, level, option, &on, sizeof on);
}

// 0: it is open no more.
uint64_t inodeOf(int fd) {
  struct stat found = {};
  return ::fstat(fd, &found) == 0 ? found.st_ino : 0;
}

}  // namespace

Result<SocketAddress> Acceptor::listen(const IpAddress& address) {
  sockaddr_storage storage{};
  const socklen_t size = SocketAddress{.ip = address, .port = 0}.toSockaddr(&storage);
  FileDescriptor listener(::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.isOpen()) return tl::unexpected(systemError("socket"));
  if (address.isV6()) setOption(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return tl::unexpected(systemError(fmt::format("{} cannot be listened on", address.toString())));
  }
  socklen_t length = sizeof storage;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0)
    return tl::unexpected(systemError("getsockname"));
  const auto bound = SocketAddress::fromSockaddr(reinterpret_cast<const sockaddr*>(&storage));
  if (!bound) return fail("getsockname: no address");
  listeners_.push_back(std::move(listener));
  return *bound;
}

Result<void> Acceptor::start(std::unique_ptr<Taker> taker) {
  taker_ = std::move(taker);
  stopping_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stopping_.isOpen()) return tl::unexpected(systemError("eventfd"));
  auto started = startThread([this] { run(); });
  if (!started) return tl::unexpected(started.error());
  thread_ = std::move(*started);
  return {};
}

void Acceptor::stop() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stopping_.get(), 1);
  thread_.join();
  listeners_.clear();
}

void Acceptor::run() {
  std::vector<pollfd> waits;
  for (const FileDescriptor& listener : listeners_) waits.push_back({listener.get(), POLLIN, 0});
  waits.push_back({stopping_.get(), POLLIN, 0});
  while (true) {
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits.back().revents != 0) return;
    for (const pollfd& wait : waits) {
      if (wait.revents != 0) accept(wait.fd);
    }
  }
}

void Acceptor::accept(int listener) {
  FileDescriptor connection(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!connection.isOpen()) {
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return;
    pollfd wait{stopping_.get(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(kNoDescriptorPause.count()));
    return;
  }
  if (isFull()) return refused_.add();
  setOption(connection.get(), IPPROTO_TCP, TCP_NODELAY);
  open_[connection.get()] = inodeOf(connection.get());
  Taker::NewConnectionParameters taken;
  taken.listener_fd = listener;
  taken.fd = connection.release();
  taker_->HandleNewConnection(&taken);
}

bool Acceptor::isFull() {
  if (open_.size() < most_) return false;
  if (BootClock::now() < next_look_) return true;
  next_look_ = BootClock::now() + kLookPause;
  std::erase_if(open_, [](const auto& one) { return inodeOf(one.first) != one.second; });
  return open_.size() >= most_;
}

}  // namespace idetcd::etcd
