// Looks up the addresses of servers that a Corefile names instead of giving their addresses. Any thread.
#pragma once

#include "base/ip_address.h"
#include "base/result.h"
#include "dns/name.h"

namespace idetcd::resolver {

// The addresses of `host`, those of IPv4 first, as the first of `resolvers` says that answers over UDP. Blocks, for two
// seconds a resolver and type at most. An error if none answers, or if there is no address.
Result<std::vector<IpAddress>> lookUpHost(const dns::Name& host, std::span<const SocketAddress> resolvers);

}  // namespace idetcd::resolver
