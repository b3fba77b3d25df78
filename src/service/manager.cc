#include "service/manager.h"

#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "service/unix_message_internal.h"

namespace idetcd::service {
namespace {

std::chrono::microseconds monotonicNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::seconds(now.tv_sec) +
                                                               std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace

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
  std::ranges::replace_if(line, [](unsigned char c) { return c < 0x20; }, ' ');
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

}  // namespace idetcd::service
