// A network namespace of its own for the calling thread: nothing that is sent there leaves it. Needs CAP_SYS_ADMIN, as
// the end-to-end tests do.
#pragma once

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace idetcd::test_support {

class NetworkNamespace {
 public:
  static constexpr const char* kAddress = "192.0.2.1";  // its own, beside those of the loopback interface

  NetworkNamespace() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (before_ < 0 || ::unshare(CLONE_NEWNET) != 0) {
      ADD_FAILURE() << "no network namespace: " << std::strerror(errno);
      return;
    }
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP;
    EXPECT_EQ(::ioctl(fd, SIOCSIFFLAGS, &loopback), 0) << std::strerror(errno);
    ifreq second{};
    std::strcpy(second.ifr_name, "lo:1");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, kAddress, &address.sin_addr);
    std::memcpy(&second.ifr_addr, &address, sizeof(address));
    EXPECT_EQ(::ioctl(fd, SIOCSIFADDR, &second), 0) << std::strerror(errno);
    ::close(fd);
  }
  ~NetworkNamespace() {
    EXPECT_EQ(::setns(before_, CLONE_NEWNET), 0) << std::strerror(errno);
    ::close(before_);
  }
  NetworkNamespace(const NetworkNamespace&) = delete;
  NetworkNamespace& operator=(const NetworkNamespace&) = delete;

 private:
  int before_;
};

}  // namespace idetcd::test_support
