// What clients may take up over TCP on the addresses of a server block.
#pragma once

#include <chrono>
#include <cstddef>

namespace idetcd::resolve {

struct TcpLimits {
  // Connections of one client to one loop. Much more than a client needs that follows RFC 7766 §6.2.2: an address may be
  // that of many clients behind a translator.
  size_t max_per_client = 512;
  // A connection on which no query has been completed for so long is closed (RFC 7766 §6.2.3: a few seconds).
  std::chrono::milliseconds idle{10'000};
};

}  // namespace idetcd::resolve
