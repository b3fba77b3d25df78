#include "dns/reverse_name.h"

#include <string>

#include <fmt/format.h>

namespace idetcd::dns {

Name reverseName(const IpAddress& address) {
  std::string text;
  for (size_t i = address.size(); i-- > 0;) {
    const unsigned octet = address.data()[i];
    text += address.isV4() ? fmt::format("{}.", octet) : fmt::format("{:x}.{:x}.", octet & 15, octet >> 4);
  }
  return *Name::parse(text + (address.isV4() ? "in-addr.arpa." : "ip6.arpa."));
}

}  // namespace idetcd::dns
