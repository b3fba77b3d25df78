// How metrics name a listener, as CoreDNS does. Any thread.
#pragma once

#include "base/ip_address.h"

namespace idetcd::resolve {

// "dns://:53", "dns://192.0.2.1:53", "dns://[2001:db8::1]:53".
inline std::string serverLabel(const SocketAddress& listening) {
  if (listening.ip.isUnspecified()) return fmt::format("dns://:{}", listening.port);
  return "dns://" + listening.toString();
}

}  // namespace idetcd::resolve
