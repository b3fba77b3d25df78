// IP addresses and transport endpoints as plain values. Any thread; no allocation except in toString().
#pragma once

#include <compare>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/result.h"

namespace idetcd {

// An IPv4 or IPv6 address without a zone, in network byte order.
class IpAddress {
 public:
  enum class Family : uint8_t { kV4 = 4, kV6 = 6 };

  // The text forms of inet_pton(3): dotted quad, or RFC 4291 without brackets and without "%zone".
  static std::optional<IpAddress> parse(std::string_view text);
  static IpAddress v4(std::array<uint8_t, 4> bytes);
  static IpAddress v6(std::array<uint8_t, 16> bytes);
  // REQUIRES: 4 or 16 bytes.
  static IpAddress fromBytes(std::span<const uint8_t> bytes);
  static std::optional<IpAddress> fromSockaddr(const sockaddr* address);

  Family family() const { return family_; }
  bool isV4() const { return family_ == Family::kV4; }
  bool isV6() const { return family_ == Family::kV6; }
  const uint8_t* data() const { return bytes_.data(); }
  size_t size() const { return isV4() ? 4 : 16; }

  bool isLoopback() const;
  bool isLinkLocal() const;  // 169.254/16, fe80::/10
  // Of a network that is not the world's: loopback, link-local, 10/8, 172.16/12 and 192.168/16 (RFC 1918), 100.64/10
  // (RFC 6598), fc00::/7 (RFC 4193). An IPv4-mapped address is what it maps.
  bool isPrivate() const;
  bool isUnspecified() const;
  bool isMulticast() const;
  IpAddress unmapped() const;  // of an IPv4-mapped one (::ffff:192.0.2.1) the IPv4 address, else itself

  std::string toString() const;  // RFC 5952
  auto operator<=>(const IpAddress&) const = default;

 private:
  Family family_ = Family::kV4;
  std::array<uint8_t, 16> bytes_{};
};

// An address and a port (host byte order).
struct SocketAddress {
  IpAddress ip;
  uint16_t port = 0;
  uint32_t scope_id = 0;  // interface index, for link-local IPv6 only

  // Fills `storage`; returns the length that bind(2) and connect(2) want.
  socklen_t toSockaddr(sockaddr_storage* storage) const;
  static std::optional<SocketAddress> fromSockaddr(const sockaddr* address);
  // "192.0.2.1:53", "[2001:db8::1]:53"
  std::string toString() const;
  // As toString() writes it. None: something else, or port 0.
  static std::optional<SocketAddress> parse(std::string_view text);
  auto operator<=>(const SocketAddress&) const = default;
};

// Networks of IP addresses, in CIDR notation. Any thread; no allocation but in errors.
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
