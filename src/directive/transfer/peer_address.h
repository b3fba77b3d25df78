// The addresses of other servers in the lines of `transfer` and `secondary`. Any thread.
#pragma once

#include "base/ip_address.h"

namespace idetcd::directive {

// "192.0.2.1", "192.0.2.1:5353", "2001:db8::1", "[2001:db8::1]:5353"; without a port it is 53.
std::optional<SocketAddress> parsePeerAddress(std::string_view text);

}  // namespace idetcd::directive
