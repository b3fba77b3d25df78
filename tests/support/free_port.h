// Ports for servers of tests that run beside each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "base/ip_address.h"

namespace idetcd::test_support {

inline bool isFree(int type, uint16_t port) {
  const FileDescriptor socket(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
  sockaddr_storage storage;
  const socklen_t length = SocketAddress{IpAddress::v4({0, 0, 0, 0}), port}.toSockaddr(&storage);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&storage), length) == 0;
}

// Free for UDP and TCP. Below those that the kernel gives to clients, which could take it meanwhile; and no other test takes
// it: it is this process's as long as the abstract Unix socket of its number is bound.
inline uint16_t freePort() {
  std::random_device random;
  for (;;) {
    const auto port = static_cast<uint16_t>(std::uniform_int_distribution(32001, 32767)(random));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = "idetcd-test-port-" + std::to_string(port);
    text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);
    const int reservation = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);  // open until the process ends
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    if (::bind(reservation, reinterpret_cast<const sockaddr*>(&name), size) != 0) {
      ::close(reservation);
      continue;
    }
    if (isFree(SOCK_DGRAM, port) && isFree(SOCK_STREAM, port)) return port;
  }
}

}  // namespace idetcd::test_support
