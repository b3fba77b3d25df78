// The addresses of a host, as plain values. Any thread.
#pragma once

#include "base/ip_address.h"

namespace idetcd::records {

// The addresses of a name. Neither: the name exists and has no data (NODATA for every type).
struct HostAddresses {
  std::optional<IpAddress> ipv4;
  std::optional<IpAddress> ipv6;
  bool operator==(const HostAddresses&) const = default;

  // Those that there are, IPv4 first.
  std::vector<IpAddress> list() const {
    std::vector<IpAddress> found;
    for (const auto& address : {ipv4, ipv6}) {
      if (address) found.push_back(*address);
    }
    return found;
  }
};

}  // namespace idetcd::records
