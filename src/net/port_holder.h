// The holder of a port that this process wants, as far as /proc tells: without rights over a process of somebody else it tells
// the user, not the program. Blocking: reads the tables of all sockets. Any thread.
#pragma once

#include <sys/types.h>

#include "base/ip_address.h"
#include "base/result.h"

namespace idetcd::net {

struct PortHolder {
  SocketAddress address;
  std::string user;     // its name, or its number
  std::string program;  // empty: unknown, as is `pid`
  pid_t pid = 0;
  uint64_t inode = 0;  // of the socket

  std::string toString() const;  // "dnsmasq (pid 81) has 0.0.0.0:53"
};

// The sockets that keep `wanted` from being bound, as far as it can be seen. REQUIRES: `protocol` is "udp" or "tcp".
std::vector<PortHolder> portHolders(std::string_view protocol, const SocketAddress& wanted);

// Whether what keeps `wanted` from being bound is the process `pid`, or this one. Of a holder whose process is hidden the
// user decides: ours.
bool isHeldBy(pid_t pid, std::string_view protocol, const SocketAddress& wanted);

// The line for an operator, with the way out: "listen udp 0.0.0.0:53: Address already in use: dnsmasq (pid 81) has
// 0.0.0.0:53; stop it, or choose …". `otherwise`: where another address is chosen. The code is that of `error`.
Error listenFailure(std::string_view protocol, const SocketAddress& address, const Error& error,
                    std::string_view otherwise);

}  // namespace idetcd::net
