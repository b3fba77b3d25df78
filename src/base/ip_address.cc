#include "base/ip_address.h"

#include <arpa/inet.h>

#include "base/text.h"

namespace idetcd {

namespace {

constexpr uint8_t kMappedBits = 96;  // in front of the IPv4 address

}  // namespace

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  char buffer[INET6_ADDRSTRLEN];
  if (text.empty() || text.size() >= sizeof(buffer)) return std::nullopt;
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  std::memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  IpAddress address;
  if (inet_pton(AF_INET, buffer, address.bytes_.data()) == 1) return address;
  if (inet_pton(AF_INET6, buffer, address.bytes_.data()) == 1) {
    address.family_ = Family::kV6;
    return address;
  }
  return std::nullopt;
}

IpAddress IpAddress::v4(std::array<uint8_t, 4> bytes) {
  IpAddress address;
  std::memcpy(address.bytes_.data(), bytes.data(), bytes.size());
  return address;
}

IpAddress IpAddress::v6(std::array<uint8_t, 16> bytes) {
  IpAddress address;
  address.family_ = Family::kV6;
  address.bytes_ = bytes;
  return address;
}

IpAddress IpAddress::fromBytes(std::span<const uint8_t> bytes) {
  assert(bytes.size() == 4 || bytes.size() == 16);
  IpAddress address;
  address.family_ = bytes.size() == 4 ? Family::kV4 : Family::kV6;
  std::copy(bytes.begin(), bytes.end(), address.bytes_.begin());
  return address;
}

std::optional<IpAddress> IpAddress::fromSockaddr(const sockaddr* address) {
  const auto socket_address = SocketAddress::fromSockaddr(address);
  if (!socket_address) return std::nullopt;
  return socket_address->ip;
}

bool IpAddress::isLoopback() const {
  if (isV4()) return bytes_[0] == 127;
  constexpr std::array<uint8_t, 16> kLoopback{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return bytes_ == kLoopback;
}

bool IpAddress::isLinkLocal() const {
  if (isV4()) return bytes_[0] == 169 && bytes_[1] == 254;
  return bytes_[0] == 0xfe && (bytes_[1] & 0xc0) == 0x80;
}

bool IpAddress::isPrivate() const {
  if (isLoopback() || isLinkLocal()) return true;
  if (isV6()) {
    const IpAddress v4 = unmapped();
    return v4.isV4() ? v4.isPrivate() : (bytes_[0] & 0xfe) == 0xfc;
  }
  return bytes_[0] == 10 || (bytes_[0] == 172 && (bytes_[1] & 0xf0) == 16) || (bytes_[0] == 192 && bytes_[1] == 168) ||
         (bytes_[0] == 100 && (bytes_[1] & 0xc0) == 64);
}

bool IpAddress::isUnspecified() const { return bytes_ == std::array<uint8_t, 16>{}; }

bool IpAddress::isMulticast() const { return isV4() ? (bytes_[0] & 0xf0) == 0xe0 : bytes_[0] == 0xff; }

IpAddress IpAddress::unmapped() const {
  constexpr std::array<uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (isV4() || !std::equal(kPrefix.begin(), kPrefix.end(), bytes_.begin())) return *this;
  return v4({bytes_[12], bytes_[13], bytes_[14], bytes_[15]});
}

std::string IpAddress::toString() const {
  char buffer[INET6_ADDRSTRLEN];
  inet_ntop(isV4() ? AF_INET : AF_INET6, bytes_.data(), buffer, sizeof(buffer));
  return buffer;
}

socklen_t SocketAddress::toSockaddr(sockaddr_storage* storage) const {
  std::memset(storage, 0, sizeof(*storage));
  if (ip.isV4()) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    std::memcpy(&address.sin_addr, ip.data(), 4);
    std::memcpy(storage, &address, sizeof(address));
    return sizeof(address);
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_scope_id = scope_id;
  std::memcpy(&address.sin6_addr, ip.data(), 16);
  std::memcpy(storage, &address, sizeof(address));
  return sizeof(address);
}

std::optional<SocketAddress> SocketAddress::fromSockaddr(const sockaddr* address) {
  SocketAddress result;
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof(v4));
    std::array<uint8_t, 4> bytes;
    std::memcpy(bytes.data(), &v4.sin_addr, bytes.size());
    result.ip = IpAddress::v4(bytes);
    result.port = ntohs(v4.sin_port);
    return result;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof(v6));
    std::array<uint8_t, 16> bytes;
    std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
    result.ip = IpAddress::v6(bytes);
    result.port = ntohs(v6.sin6_port);
    result.scope_id = v6.sin6_scope_id;
    return result;
  }
  return std::nullopt;
}

std::string SocketAddress::toString() const {
  return ip.isV4() ? fmt::format("{}:{}", ip.toString(), port) : fmt::format("[{}]:{}", ip.toString(), port);
}

std::optional<SocketAddress> SocketAddress::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto ip = IpAddress::parse(host);
  const auto port = parseNumber<uint16_t>(text.substr(colon + 1));
  if (!ip || !port || *port == 0 || (ip->isV6() && text.front() != '[')) return std::nullopt;
  return SocketAddress{.ip = *ip, .port = *port};
}

Result<IpNetwork> IpNetwork::parse(std::string_view text) {
  const auto illegal = [text] { return fail(fmt::format("illegal CIDR notation '{}'", text)); };
  const size_t slash = text.find('/');
  const auto address = IpAddress::parse(text.substr(0, slash));
  if (!address) return illegal();
  const auto max_bits = static_cast<uint8_t>(address->size() * 8);
  IpNetwork network{*address, max_bits};
  if (slash != std::string_view::npos) {
    const auto prefix_length = parseNumber<uint8_t>(text.substr(slash + 1));
    if (!prefix_length || *prefix_length > max_bits) return illegal();
    network.prefix_length = *prefix_length;
  }
  const IpAddress unmapped = address->unmapped();
  if (address->isV6() && unmapped.isV4() && network.prefix_length >= kMappedBits) {
    network.address = unmapped;
    network.prefix_length = static_cast<uint8_t>(network.prefix_length - kMappedBits);
  }
  return network;
}

bool IpNetwork::contains(const IpAddress& other) const {
  const IpAddress candidate = other.unmapped();
  if (candidate.family() != address.family()) return false;
  const size_t whole = prefix_length / 8;
  for (size_t i = 0; i < whole; ++i) {
    if (candidate.data()[i] != address.data()[i]) return false;
  }
  const unsigned rest = prefix_length % 8;
  return rest == 0 || (candidate.data()[whole] ^ address.data()[whole]) >> (8 - rest) == 0;
}

}  // namespace idetcd
