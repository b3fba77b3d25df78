// Who asked, and over what. Borrowed for the time of one call.
#pragma once

#include <cstdint>

#include "base/ip_address.h"

struct sockaddr;

namespace idetcd::resolve {

enum class Transport : uint8_t { kUdp, kTcp };

struct Request {
  const sockaddr* source = nullptr;
  const SocketAddress* local = nullptr;  // of the listener
  Transport transport = Transport::kUdp;
  size_t response_limit = 0;  // octets: what this transport and client can take
};

}  // namespace idetcd::resolve
