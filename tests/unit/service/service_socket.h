// systemd's end of its notification protocol.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <gtest/gtest.h>

#include "base/file_descriptor.h"

namespace idetcd::service::test {

inline ino_t inode(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

struct Message {
  std::string text;
  FileDescriptor attached;
};

// An abstract Unix socket under a name that the kernel has chosen.
class NotifySocket {
 public:
  NotifySocket() {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(sa_family_t)), 0);
    socklen_t size = sizeof name;
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&name), &size);
    address_ = "@" + std::string(name.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  }

  const std::string& address() const { return address_; }  // as $NOTIFY_SOCKET has it

  Message next() {
    constexpr int kPatience = 10'000;
    pollfd event{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (poll(&event, 1, kPatience) != 1) return {.text = "nothing came", .attached = {}};
    std::array<char, 4096> buffer;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    iovec data{.iov_base = buffer.data(), .iov_len = buffer.size()};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t size = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
    Message message{.text = std::string(buffer.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))), .attached = {}};
    if (const cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
      message.attached = FileDescriptor(fd);
    }
    return message;
  }

 private:
  FileDescriptor socket_{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  std::string address_;
};

}  // namespace idetcd::service::test
