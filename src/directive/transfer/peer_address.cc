#include "directive/transfer/peer_address.h"

namespace idetcd::directive {

std::optional<SocketAddress> parsePeerAddress(std::string_view text) {
  constexpr uint16_t kPort = 53;
  if (const auto ip = IpAddress::parse(text)) return SocketAddress{.ip = *ip, .port = kPort};
  return SocketAddress::parse(text);
}

}  // namespace idetcd::directive
