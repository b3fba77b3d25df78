// Limits for clients over TCP on the addresses of a server block.
#pragma once

#include "base/std.h"

namespace idetcd::resolve {

struct TcpLimits {
  // Connections of one client to one loop. Much more than a client needs that follows RFC 7766 §6.2.2: an address may be
  // that of many clients behind a translator.
  size_t max_per_client = 512;
  // A connection on which no query has been completed for so long is closed (RFC 7766 §6.2.3: a few seconds).
  std::chrono::milliseconds idle{10'000};
  // The same until the first query has come. Nothing: as `idle`.
  std::optional<std::chrono::milliseconds> first{};
  // One whose client has not read anything of its answers for so long is closed. Nothing: as `idle`.
  std::optional<std::chrono::milliseconds> write{};

  std::chrono::milliseconds firstTime() const { return first.value_or(idle); }
  std::chrono::milliseconds writeTime() const { return write.value_or(idle); }
};

}  // namespace idetcd::resolve
