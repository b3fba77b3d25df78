#include "resolver/query_origin.h"

#include <netinet/in.h>

#include "base/ip_address.h"
#include "dns/wire.h"

namespace idetcd::resolver {

namespace {

uint64_t load64(const uint8_t* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

uint16_t portOf(const sockaddr* source) {
  return ntohs(source->sa_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(source)->sin_port
                                            : reinterpret_cast<const sockaddr_in6*>(source)->sin6_port);
}

}  // namespace

ClientId ClientId::of(const sockaddr* source) {
  if (source == nullptr) return {};
  const auto any = IpAddress::fromSockaddr(source);
  if (!any) return {};
  const IpAddress ip = any->unmapped();
  uint32_t v4 = 0;
  std::memcpy(&v4, ip.data(), sizeof(v4));
  if (ip.isLoopback()) {
    return {.address = ip.isV4() ? v4 : ~uint64_t{0}, .port = portOf(source), .kind = Kind::kLoopback};
  }
  if (ip.isV4()) return {.address = v4, .port = 0, .kind = Kind::kIpv4};
  if (ip.isLinkLocal()) return {.address = load64(ip.data() + 8), .port = 0, .kind = Kind::kLinkLocal};
  return {.address = load64(ip.data()), .port = 0, .kind = Kind::kIpv6};
}

QueryOrigin QueryOrigin::of(const dns::Query& query, const resolve::Request& request) {
  return {.client = ClientId::of(request.source),
          .port = request.source != nullptr ? portOf(request.source) : uint16_t{0},
          .id = query.message != nullptr ? dns::load16(query.message) : uint16_t{0},
          .transport = request.transport,
          .query_size = std::max(query.size, query.question_end),
          .response_limit = request.response_limit};
}

}  // namespace idetcd::resolver
