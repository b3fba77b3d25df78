// Who is asked for names by the programs of this machine: resolv.conf(5), as glibc reads it. Any thread.
#pragma once

#include "base/ip_address.h"
#include "base/result.h"

namespace idetcd::node {

struct ResolverConfig {
  std::vector<IpAddress> servers;   // without their zone
  std::vector<std::string> search;  // lower case, without the dot at the end
  int ndots = 1;
};

// Pure. What cannot be read is left out.
ResolverConfig parseResolverConfig(std::string_view text);

// Blocks.
Result<ResolverConfig> readResolverConfig(const std::string& path = "/etc/resolv.conf");

}  // namespace idetcd::node
