#include "peers/etcd_child.h"

#include <csignal>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/executor.h"

namespace idetcd::peers {

namespace {

std::string describe(const Result<int>& status) {
  if (!status) return status.error().message;
  if (WIFSIGNALED(*status)) return fmt::format("killed by signal {}", WTERMSIG(*status));
  return fmt::format("ended with status {}", WEXITSTATUS(*status));
}

// Begins to connect; closed: that has failed.
FileDescriptor beginToConnect(const SocketAddress& address) {
  const int family = address.ip.isV4() ? AF_INET : AF_INET6;
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.isOpen()) return socket;
  sockaddr_storage storage;
  const socklen_t length = address.toSockaddr(&storage);
  const int begun = connect(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length);
  if (begun != 0 && errno != EINPROGRESS) return FileDescriptor();
  return socket;
}

}  // namespace

bool isServed(const SocketAddress& address, std::chrono::milliseconds patience) {
  constexpr std::string_view kQuestion = "GET / HTTP/1.0\r\n\r\n";  // a TLS server refuses it
  const FileDescriptor socket = beginToConnect(address);
  if (!socket.isOpen()) return false;
  const int patience_ms = static_cast<int>(patience.count());
  pollfd wait{socket.get(), POLLOUT, 0};
  if (poll(&wait, 1, patience_ms) != 1 || (wait.revents & (POLLERR | POLLHUP)) != 0) return false;
  if (send(socket.get(), kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL) < 0) return false;
  wait.events = POLLIN;
  return poll(&wait, 1, patience_ms) == 1;
}

std::set<SocketAddress> unservedOf(const std::vector<SocketAddress>& addresses, std::chrono::milliseconds patience) {
  const BootClock::time_point deadline = BootClock::now() + patience;
  std::set<SocketAddress> unserved(addresses.begin(), addresses.end());
  std::vector<FileDescriptor> sockets;
  std::vector<pollfd> waits;
  sockets.reserve(addresses.size());
  waits.reserve(addresses.size());
  for (const SocketAddress& address : addresses) {
    sockets.push_back(beginToConnect(address));
    waits.push_back({sockets.back().isOpen() ? sockets.back().get() : -1, POLLOUT, 0});  // -1: none is awaited
  }
  while (std::ranges::any_of(waits, [](const pollfd& wait) { return wait.fd >= 0; })) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - BootClock::now());
    // Once at least: this thread may have waited for a processor longer than the others' answers took.
    const int ready = poll(waits.data(), waits.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready == 0 || (ready < 0 && errno != EINTR)) break;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      if ((waits[i].revents & (POLLERR | POLLHUP)) == 0) unserved.erase(addresses[i]);
      waits[i].fd = -1;
    }
  }
  return unserved;
}

EtcdChild::EtcdChild(Options options) : options_(std::move(options)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  assert(options_.programs && !options_.command.empty());
}

EtcdChild::~EtcdChild() { stop(); }

Result<void> EtcdChild::start() {
  auto thread = startThread([this] { run(); });
  if (!thread) return tl::unexpected(thread.error());
  thread_ = std::move(*thread);
  return {};
}

void EtcdChild::stop(std::chrono::milliseconds patience) {
  {
    const std::lock_guard lock(mutex_);
    patience_ = std::exchange(stopping_, true) ? std::min(patience_, patience) : patience;
  }
  changed_.notify_all();
  eventfd_write(wake_.get(), 1);
  std::call_once(joined_, [this] {
    if (thread_.joinable()) thread_.join();
  });
}

void EtcdChild::run() {
  std::chrono::milliseconds next_pause = kFirstPause;
  do {
    const BootClock::time_point started = BootClock::now();
    const std::string end = runOnce();
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    runs_ = false;
    problem_ = fmt::format("{}: {}; it is run again, at intervals of up to {} s", options_.name, end,
                           kLastPause.count() / 1000);
    if (BootClock::now() - started >= kSteady) next_pause = kFirstPause;
  } while (pause(std::exchange(next_pause, std::min(next_pause * 2, kLastPause))));
}

std::string EtcdChild::problem() const {
  const std::lock_guard lock(mutex_);
  return runs_ && BootClock::now() - started_ >= kSteady ? std::string() : problem_;
}

bool EtcdChild::pause(std::chrono::milliseconds pause) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, pause, [this] { return stopping_; });
}

void EtcdChild::end(const sandbox::RunningProgram& program) {
  constexpr int kKillPatienceMs = 1000;
  const BootClock::time_point begun = BootClock::now();
  std::array<pollfd, 2> fds{{{program.descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  bool is_asked = false;
  while (true) {
    eventfd_t calls = 0;
    eventfd_read(wake_.get(), &calls);  // before patience() is asked: a later stop() wakes the poll
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(begun + patience() - BootClock::now());
    if (left.count() <= 0) break;
    if (!std::exchange(is_asked, true)) program.terminate();
    poll(fds.data(), fds.size(), static_cast<int>(left.count()));
    if (fds[0].revents != 0) return;
  }
  program.kill();
  poll(fds.data(), 1, kKillPatienceMs);
}

std::chrono::milliseconds EtcdChild::patience() const {
  const std::lock_guard lock(mutex_);
  return patience_;
}

std::string EtcdChild::runOnce() {
  std::vector<std::string> command = options_.command;
  {
    const std::lock_guard lock(mutex_);
    started_ = BootClock::now();
    runs_ = true;
  }
  if (starts_.fetch_add(1, std::memory_order_relaxed) == 0)
    command.insert(command.end(), options_.first_only.begin(), options_.first_only.end());
  const auto program = options_.programs->start(command, {});
  if (!program) return program.error().message;
  std::array<pollfd, 2> fds{{{program->descriptor(), POLLIN, 0}, {wake_.get(), POLLIN, 0}}};
  while (poll(fds.data(), fds.size(), -1) < 0) {
  }
  pollfd& ended = fds[0];
  if (ended.revents == 0) end(*program);
  Result<int> status = fail("it does not end");
  if (poll(&ended, 1, 0) == 1) status = program->wait();
  return describe(status);
}

}  // namespace idetcd::peers
