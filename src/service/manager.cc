#include "service/manager.h"

#include <charconv>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

namespace idetcd::service {

namespace {

// Datagrams and messages on Unix sockets, each with at most one descriptor (SCM_RIGHTS).

constexpr size_t kMaxText = 255;

struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

msghdr headerOf(iovec& data) {
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  return header;
}

void setControl(msghdr& header, Control& control) {
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
}

// The name of a Unix socket.
struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;  // 0: there is no such name

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// "/path", a relative one too, or "@abstract". No name: `text` is empty or too long.
UnixAddress unixAddress(std::string_view text) {
  UnixAddress name;
  if (text.empty() || text.size() >= sizeof name.address.sun_path) return name;
  const bool is_abstract = text.starts_with('@');
  name.address.sun_family = AF_UNIX;
  std::ranges::copy(text, name.address.sun_path);
  if (is_abstract) name.address.sun_path[0] = '\0';
  // The name of an abstract socket ends with the address, that of a file with a NUL.
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (is_abstract ? 0 : 1));
  return name;
}

// Sends `text` with a duplicate of `attached` (negative: none) to `to` (null: the connected peer). False: errno.
bool sendMessage(int socket, std::string_view text, int attached, const UnixAddress* to, int flags) {
  std::string copy(text);
  iovec data{.iov_base = copy.data(), .iov_len = copy.size()};
  msghdr header = headerOf(data);
  UnixAddress target;
  if (to != nullptr) {
    target = *to;
    header.msg_name = &target.address;
    header.msg_namelen = target.size;
  }
  Control control;
  if (attached >= 0) {
    setControl(header, control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof attached);
    std::memcpy(CMSG_DATA(rights), &attached, sizeof attached);
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

struct UnixMessage {
  std::string text;  // empty: the connection has ended
  FileDescriptor attached;
};

// The next message, of at most 255 bytes, without waiting for it. False: there is none, errno says why.
bool receiveMessage(int socket, UnixMessage* message) {
  std::array<char, kMaxText> text;
  iovec data{.iov_base = text.data(), .iov_len = text.size()};
  msghdr header = headerOf(data);
  Control control;
  setControl(header, control);
  const ssize_t size = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return false;
  message->text.assign(text.data(), static_cast<size_t>(size));
  const cmsghdr* rights = CMSG_FIRSTHDR(&header);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return true;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
  message->attached = FileDescriptor(fd);
  return true;
}

constexpr int kFirstDescriptor = 3;  // SD_LISTEN_FDS_START

std::string take(const char* variable) {
  const char* value = std::getenv(variable);
  std::string text = value != nullptr ? value : "";
  unsetenv(variable);
  return text;
}

std::optional<uint64_t> toNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool isThisProcess(std::string_view pid) { return toNumber(pid) == static_cast<uint64_t>(getpid()); }

std::vector<GivenDescriptor> takeDescriptors() {
  const bool for_us = isThisProcess(take("LISTEN_PID"));
  const auto count = toNumber(take("LISTEN_FDS"));
  const std::string names = take("LISTEN_FDNAMES");
  std::vector<GivenDescriptor> descriptors;
  if (!for_us || !count || *count > static_cast<uint64_t>(sysconf(_SC_OPEN_MAX))) return descriptors;
  std::string_view rest = names;
  for (int fd = kFirstDescriptor; fd < kFirstDescriptor + static_cast<int>(*count); ++fd) {
    const std::string_view name = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) continue;  // it is not open
    descriptors.push_back({.fd = FileDescriptor(fd), .name = std::string(name)});
  }
  return descriptors;
}

std::chrono::microseconds takeWatchdog() {
  const std::string pid = take("WATCHDOG_PID");
  const auto limit = toNumber(take("WATCHDOG_USEC"));
  const bool for_us = pid.empty() || isThisProcess(pid);
  if (!for_us || !limit || *limit > static_cast<uint64_t>(std::chrono::microseconds(std::chrono::hours(24)).count())) {
    return std::chrono::microseconds(0);
  }
  return std::chrono::microseconds(*limit);
}

std::chrono::microseconds monotonicNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::seconds(now.tv_sec) +
                                                               std::chrono::nanoseconds(now.tv_nsec));
}

constexpr std::string_view kGive = "give";
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

// Readable once the process has ended. Closed where that is invisible: in another PID namespace its number is 0.
FileDescriptor openProcess(pid_t pid) {
  if (pid <= 0 || pid == getpid()) return {};
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
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

Given takeGiven() {
  return {.notify_socket = take("NOTIFY_SOCKET"), .watchdog = takeWatchdog(), .descriptors = takeDescriptors()};
}

// The way to the manager. One thread at a time, which waits for it.
class Manager::Link {
 public:
  Link(const UnixAddress& manager, Logger log)
      : manager_(manager), log_(std::move(log)), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }

  // Not connected: a manager that was started anew has another socket of this name.
  void send(const std::string& message, const FileDescriptor& attached) {
    if (sendMessage(socket_.get(), message, attached.get(), &manager_, 0)) {
      failing_ = false;
    } else if (!std::exchange(failing_, true)) {
      log_.warning("The service manager does not take messages: {}", std::strerror(errno));
    }
  }

 private:
  const UnixAddress manager_;
  const Logger log_;
  const FileDescriptor socket_;
  bool failing_ = false;  // the last message was lost
};

Manager::Manager(std::string address, const std::shared_ptr<Executor>& executor, Logger log) {
  if (address.empty()) return;
  const UnixAddress parsed = unixAddress(address);
  if (parsed.size == 0 || (address[0] != '/' && address[0] != '@')) {
    log.warning("NOTIFY_SOCKET={}: not the address of a Unix socket", address);
    return;
  }
  link_ = std::make_shared<Link>(parsed, std::move(log));
  strand_ = executor->makeStrand();
}

void Manager::send(std::string message, FileDescriptor attached) {
  if (!link_) return;
  strand_->submit([link = link_, message = std::move(message),
                   kept = std::make_shared<FileDescriptor>(std::move(attached))] { link->send(message, *kept); });
}

void Manager::ready() { send("READY=1"); }
void Manager::reloading() { send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", monotonicNow().count())); }
void Manager::stopping() { send("STOPPING=1"); }
void Manager::alive() { send("WATCHDOG=1"); }

void Manager::status(std::string_view text) {
  std::string line = fmt::format("STATUS={}", text);
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20; }, ' ');
  send(std::move(line));
}

void Manager::store(int fd, std::string_view name) {
  if (!link_) return;
  // FDPOLL=0: the manager would else give up a socket that reports an error, say one that a client was not reached at.
  send(fmt::format("FDSTORE=1\nFDNAME={}\nFDPOLL=0", name), FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0)));
}

void Manager::remove(std::string_view name) { send(fmt::format("FDSTOREREMOVE=1\nFDNAME={}", name)); }

// The manager closes what it is sent when it has come to it, and sees it as the end of a pipe.
bool Manager::barrier(std::chrono::milliseconds budget) {
  if (!link_) return false;
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  const FileDescriptor read_end(ends[0]);
  send("BARRIER=1", FileDescriptor(ends[1]));
  pollfd end{.fd = read_end.get(), .events = 0, .revents = 0};
  return ::poll(&end, 1, static_cast<int>(budget.count())) == 1;
}

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

Result<bool> HandoverSocket::give(const std::vector<OwnDescriptor>& all) {
  if (!successor_.isOpen()) {
    FileDescriptor successor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!successor.isOpen()) return failWith(errno, "accept4");
    if (!isOfOurUser(successor)) return fail("it is another user's");
    successor_ = std::move(successor);
  }
  UnixMessage message;
  if (!receiveMessage(successor_.get(), &message) && errno == EAGAIN) return false;
  FileDescriptor successor = std::exchange(successor_, {});
  if (message.text != kGive) return fail("it has gone");
  for (const OwnDescriptor& one : all) {
    if (!sendMessage(successor.get(), one.name, one.fd, nullptr, MSG_DONTWAIT)) return failWith(errno, "sendmsg");
  }
  if (!sendMessage(successor.get(), kEnd, -1, nullptr, MSG_DONTWAIT)) return failWith(errno, "sendmsg");
  successor_ = std::move(successor);
  return true;
}

pid_t HandoverSocket::successor() const {
  pollfd end{.fd = successor_.get(),
             .events = 0,
             .revents = 0};  // the kernel knows the peer of a connection that has ended, too
  const bool is_there = successor_.isOpen() && poll(&end, 1, 0) == 0;
  const auto peer = is_there ? peerOf(successor_) : std::nullopt;
  return peer ? peer->pid : 0;
}

Predecessor::Predecessor(FileDescriptor connection, pid_t pid)
    : connection_(std::move(connection)), pid_(pid), process_(openProcess(pid)) {}

Result<std::optional<Predecessor>> Predecessor::find(const std::string& path) {
  const UnixAddress address = unixAddress(path);
  if (address.size == 0) return fail("the path is too long for a Unix socket");
  FileDescriptor server = openSocket(0);
  if (connect(server.get(), address.get(), address.size) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return std::nullopt;
    return failWith(errno);
  }
  if (!isOfOurUser(server)) return fail("who listens there is another user's");
  const auto peer = peerOf(server);
  return Predecessor(std::move(server), peer ? peer->pid : 0);
}

Result<std::vector<GivenDescriptor>> Predecessor::takeOver(std::chrono::milliseconds budget) {
  const auto end = BootClock::now() + budget;
  // One that has ended says so below.
  (void)sendMessage(connection_.get(), kGive, -1, nullptr, MSG_DONTWAIT);
  std::vector<GivenDescriptor> all;
  for (bool is_complete = false;;) {
    auto message = receive(connection_, end);
    if (!message) return tl::unexpected(message.error());
    if (message->text.empty() && is_complete) {
      // The kernel closes what a process has in an order of its own: the lock of the state directory maybe after this.
      if (process_.isOpen()) waitReadable(process_, end);
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
