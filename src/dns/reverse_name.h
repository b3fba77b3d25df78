// The names under which addresses are looked up. Any thread.
#pragma once

#include "base/ip_address.h"
#include "dns/name.h"

namespace idetcd::dns {

// 192.0.2.1 is 1.2.0.192.in-addr.arpa. (RFC 1035 §3.5); of IPv6 each four bits are a label of ip6.arpa. (RFC 3596
// §2.5).
Name reverseName(const IpAddress& address);

// The address whose reverse name this is; none for other names, those of networks among them. REQUIRES: `name` is a
// valid, uncompressed, lower-case wire name.
std::optional<IpAddress> addressOfReverseName(std::span<const uint8_t> name);

struct AddressRange {
  IpAddress first;
  IpAddress last;
};
// The addresses whose reverse names are below this one: of 2.0.192.in-addr.arpa. 192.0.2.0 to 192.0.2.255. None for a name
// that is not above one, and for the two trees themselves. REQUIRES: as addressOfReverseName().
std::optional<AddressRange> addressesBelow(std::span<const uint8_t> name);

}  // namespace idetcd::dns
