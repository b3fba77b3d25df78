#include "node/vm_generation.h"

#include <linux/netlink.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/executor.h"

namespace idetcd::node {

VmGeneration::VmGeneration(std::function<void()> on_change, const Logger& log) : on_change_(std::move(on_change)) {
  stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (!open()) {
    log.debug("events of the kernel are not available: {}", std::strerror(errno));
    return;
  }
  auto thread = startThread([this] { run(); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    log.warning("that this machine was resumed from a snapshot will not be noticed: {}", thread.error().message);
  }
}

VmGeneration::~VmGeneration() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = write(stop_fd_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  if (netlink_fd_ >= 0) close(netlink_fd_);
  close(stop_fd_);
}

bool VmGeneration::isNewGeneration(std::string_view event) {
  while (!event.empty()) {
    const size_t end = std::min(event.find('\0'), event.size());
    if (event.substr(0, end) == "NEW_VMGENID=1") return true;
    event.remove_prefix(std::min(end + 1, event.size()));
  }
  return false;
}

bool VmGeneration::open() {
  constexpr uint32_t kFromKernel = 1;  // the group of the kernel's own messages; 2 is udev's
  netlink_fd_ = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
  if (netlink_fd_ < 0) return false;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = kFromKernel;
  return bind(netlink_fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

void VmGeneration::run() {
  std::array<pollfd, 2> fds{{{stop_fd_, POLLIN, 0}, {netlink_fd_, POLLIN, 0}}};
  while (true) {
    poll(fds.data(), fds.size(), -1);
    if (fds[0].revents != 0) return;
    bool changed = false;
    while (receive()) changed = true;
    if (changed) on_change_();
  }
}

// Until the socket is empty. True: an event reports a new generation, or one that may have was lost.
bool VmGeneration::receive() {
  std::array<char, 8192> buffer;
  while (true) {
    sockaddr_nl sender{};
    socklen_t length = sizeof sender;
    const ssize_t size =
        recvfrom(netlink_fd_, buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&sender), &length);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == ENOBUFS;
    // Only the kernel's word counts (port 0), not that of a process.
    if (sender.nl_pid == 0 && isNewGeneration({buffer.data(), static_cast<size_t>(size)})) return true;
  }
}

}  // namespace idetcd::node
