// The prefix of a NAT64, and the IPv6 addresses within it that stand for IPv4 addresses (RFC 6052 §2.2). Any thread.
//
//   length  octets of the address: p prefix, 4 the IPv4 address, u zero, . suffix
//     32    pppp 4444 u... ....
//     40    pppp p444 u4.. ....
//     48    pppp pp44 u44. ....
//     56    pppp ppp4 u444 ....
//     64    pppp pppp u444 4...
//     96    pppp pppp uppp 4444
#pragma once

#include "base/ip_address.h"
#include "base/result.h"

namespace idetcd::resolver {

class Nat64Prefix {
 public:
  using V6 = std::array<uint8_t, 16>;

  Nat64Prefix() = default;  // the well-known one, 64:ff9b::/96

  // "2001:db8:64::/96". The error is a text without a place.
  static Result<Nat64Prefix> parse(std::string_view text);

  // Whether the address may stand in this prefix: the well-known one is for addresses of the world only (RFC 6052 §3.1),
  // since packets to others are dropped by the NAT64. REQUIRES: `v4` is an IPv4 address.
  bool mayEmbed(const IpAddress& v4) const;
  // REQUIRES: 4 octets.
  V6 embed(std::span<const uint8_t> v4) const;
  // The IPv4 address that `v6` stands for; none if it is not of this prefix. The suffix is not looked at. REQUIRES: an IPv6
  // address.
  std::optional<IpAddress> extract(const IpAddress& v6) const;

 private:
  static constexpr V6 kWellKnown{0x00, 0x64, 0xff, 0x9b};

  V6 octets_ = kWellKnown;
  uint8_t size_ = 12;  // octets of the prefix
};

}  // namespace idetcd::resolver
