#include "node/address_monitor.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/executor.h"

namespace idetcd::node {

using namespace std::chrono_literals;

AddressMonitor::AddressMonitor(Options options, std::function<void()> on_change, Logger log)
    : options_(options), on_change_(std::move(on_change)), log_(std::move(log)) {
  stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (!open()) {
    log_.warning("changes of this machine's addresses will not be noticed: {}", std::strerror(errno));
    return;
  }
  auto thread = startThread([this] { run(); });
  if (thread) {
    thread_ = std::move(*thread);
  } else {
    log_.warning("changes of this machine's addresses will not be noticed: {}", thread.error().message);
  }
}

AddressMonitor::~AddressMonitor() {
  const uint64_t one = 1;
  if (write(stop_fd_, &one, sizeof one) < 0) log_.debug("address monitor: {}", std::strerror(errno));
  if (thread_.joinable()) thread_.join();
  if (netlink_fd_ >= 0) close(netlink_fd_);
  close(stop_fd_);
}

bool AddressMonitor::open() {
  netlink_fd_ = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  if (netlink_fd_ < 0) return false;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;
  return bind(netlink_fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

void AddressMonitor::run() {
  on_change_();
  while (true) {
    bool news = false;
    if (!wait(std::chrono::hours(1), &news)) return;
    if (!news) continue;
    const BootClock::time_point first = BootClock::now();
    while (news && BootClock::now() < first + options_.at_latest) {
      drain();
      if (!wait(options_.settle, &news)) return;
    }
    on_change_();
  }
}

// False: the monitor is being destroyed.
bool AddressMonitor::wait(std::chrono::nanoseconds timeout, bool* news) {
  std::array<pollfd, 2> fds{{{stop_fd_, POLLIN, 0}, {netlink_fd_, POLLIN, 0}}};
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  poll(fds.data(), fds.size(), static_cast<int>(milliseconds));
  *news = fds[1].revents != 0;
  return fds[0].revents == 0;
}

// The messages' content does not matter, nor does an overrun (ENOBUFS): the machine is looked at anew.
void AddressMonitor::drain() {
  std::array<char, 8192> buffer;
  while (recv(netlink_fd_, buffer.data(), buffer.size(), 0) > 0 || errno == EINTR || errno == ENOBUFS) {
  }
}

}  // namespace idetcd::node
