// Networks of IP addresses, in CIDR notation. Any thread; no allocation but in errors.
#pragma once

#include "base/ip_address.h"
#include "base/result.h"

namespace idetcd {

struct IpNetwork {
  IpAddress address;  // bits behind the prefix are ignored
  uint8_t prefix_length = 0;

  // "192.0.2.0/24", "2001:db8::/32"; an address alone is a network of its own. A network of IPv4-mapped addresses is that
  // of the IPv4 addresses.
  static Result<IpNetwork> parse(std::string_view text);
  // Addresses of the other family are outside; an IPv4-mapped one is the IPv4 address (RFC 4291 §2.5.5.2).
  bool contains(const IpAddress& other) const;
  bool operator==(const IpNetwork&) const = default;
};

}  // namespace idetcd
