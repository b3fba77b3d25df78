#include "service/handover.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "service/unix_message_internal.h"

namespace idetcd::service {
namespace {

constexpr std::string_view kEnd = "end";
constexpr mode_t kNobodyElse = 0177;

FileDescriptor openSocket(int flags) {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

// None if the kernel does not say.
std::optional<ucred> peerOf(const FileDescriptor& connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

bool isOfOurUser(const FileDescriptor& connection) {
  const auto peer = peerOf(connection);
  return peer && peer->uid == geteuid();
}

// Readable once the peer's process has ended. Closed where that is invisible: in another PID namespace its number is 0.
FileDescriptor openPeer(const FileDescriptor& connection) {
  const auto peer = peerOf(connection);
  if (!peer || peer->pid <= 0 || peer->pid == getpid()) return {};
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, peer->pid, 0)));
}

bool waitReadable(const FileDescriptor& descriptor, BootClock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - BootClock::now()).count();
  pollfd event{.fd = descriptor.get(), .events = POLLIN, .revents = 0};
  return left > 0 && poll(&event, 1, static_cast<int>(left)) == 1;
}

// The next message until `end`; an empty one at the end of the connection.
Result<UnixMessage> receive(const FileDescriptor& connection, BootClock::time_point end) {
  if (!waitReadable(connection, end)) return fail("it takes too long");
  UnixMessage message;
  // A process that has ended with something unread resets its connections.
  if (!receiveMessage(connection.get(), &message) && errno != ECONNRESET) return failWith(errno, "recvmsg");
  return message;
}

}  // namespace

Result<HandoverSocket> HandoverSocket::listen(const std::string& path) {
  const UnixAddress address = unixAddress(path);
  if (address.size == 0) return fail("the path is too long for a Unix socket");
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) return fail("there is a file that is no socket");
  FileDescriptor listener = openSocket(SOCK_NONBLOCK);
  unlink(path.c_str());
  const mode_t mask = umask(kNobodyElse);
  const bool bound = bind(listener.get(), address.get(), address.size) == 0;
  const int error = errno;
  umask(mask);
  if (!bound) return failWith(error);
  if (::listen(listener.get(), 1) != 0) return failWith(errno);
  return HandoverSocket(std::move(listener));
}

Result<void> HandoverSocket::give(const std::vector<OwnDescriptor>& all) {
  FileDescriptor successor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!successor.isOpen()) return failWith(errno, "accept4");
  if (!isOfOurUser(successor)) return fail("it is another user's");
  for (const OwnDescriptor& one : all) {
    if (!sendMessage(successor.get(), one.name, one.fd, nullptr, MSG_DONTWAIT)) return failWith(errno, "sendmsg");
  }
  if (!sendMessage(successor.get(), kEnd, -1, nullptr, MSG_DONTWAIT)) return failWith(errno, "sendmsg");
  successor_ = std::move(successor);
  return {};
}

Result<std::vector<GivenDescriptor>> takeOver(const std::string& path, std::chrono::milliseconds budget) {
  const UnixAddress address = unixAddress(path);
  if (address.size == 0) return fail("the path is too long for a Unix socket");
  const FileDescriptor server = openSocket(0);
  std::vector<GivenDescriptor> all;
  if (connect(server.get(), address.get(), address.size) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return all;
    return failWith(errno);
  }
  if (!isOfOurUser(server)) return fail("who listens there is another user's");
  const auto end = BootClock::now() + budget;
  const FileDescriptor process = openPeer(server);
  for (bool is_complete = false;;) {
    auto message = receive(server, end);
    if (!message) return tl::unexpected(message.error());
    if (message->text.empty() && is_complete) {
      // The kernel closes what a process has in an order of its own: the lock of the state directory maybe after this.
      if (process.isOpen()) waitReadable(process, end);
      return all;
    }
    if (message->text.empty()) return fail("the server that runs does not give up its sockets");
    if (message->text == kEnd) {
      is_complete = true;
    } else if (message->attached.isOpen()) {
      all.push_back({.fd = std::move(message->attached), .name = std::move(message->text)});
    }
  }
}

}  // namespace idetcd::service
