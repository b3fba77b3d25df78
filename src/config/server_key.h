// The key of a server block: `[scheme://]zone[:port]`. Pure; any thread.
#pragma once

#include "base/result.h"
#include "dns/name.h"

namespace idetcd::config {

// How clients speak to a server block: DNS over UDP and TCP, over TLS (RFC 7858), or over HTTPS (RFC 8484).
enum class Scheme : uint8_t { kDns, kTls, kHttps };

// "dns", "tls", "https".
std::string_view schemeName(Scheme scheme);

// A zone that a server block serves, and the port it serves it on.
struct ServerKey {
  dns::Name zone;
  uint16_t port = 53;  // host byte order; 0 lets the kernel choose
  std::string text;    // "example.org.:53", "tls://example.org.:853", as in the lines printed at start
  Scheme scheme = Scheme::kDns;

  friend bool operator==(const ServerKey&, const ServerKey&) = default;
};

// One key in the text is one key out, except for a network in CIDR notation. That stands for its reverse zone, or for
// several if its length falls between two labels: 10.2.0.0/15 is 2.10.in-addr.arpa. and 3.10.in-addr.arpa.
// (RFC 1035 §3.5: a label is 8 bits; RFC 3596 §2.5: 4 bits.) `default_port` is that of dns://. Error messages are
// fragments without a place.
Result<std::vector<ServerKey>> parseServerKey(std::string_view text, uint16_t default_port);

// Where clients ask over UDP and TCP; nothing: they ask over TLS and HTTPS only.
std::optional<uint16_t> dnsPortOf(const std::vector<ServerKey>& keys);

}  // namespace idetcd::config
