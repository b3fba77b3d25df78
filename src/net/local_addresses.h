// The addresses of this machine's interfaces. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ip_address.h"
#include "base/result.h"

namespace idetcd::net {

// Every address of the interface called `name` (scope_id set for link-local IPv6, port 0). An error if there is no such
// interface or it has none.
Result<std::vector<SocketAddress>> interfaceAddresses(std::string_view name);

}  // namespace idetcd::net
