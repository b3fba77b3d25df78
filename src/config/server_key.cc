#include "config/server_key.h"

#include "base/ip_address.h"
#include "base/text.h"

namespace idetcd::config {
namespace {

// The last colon that a backslash does not take into a label.
size_t lastColon(std::string_view text) {
  size_t found = std::string_view::npos;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == ':') {
      found = i;
    }
  }
  return found;
}

struct Network {
  IpAddress address;
  unsigned length;
};

std::optional<Network> parseCidr(std::string_view text) {
  const size_t slash = text.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<IpAddress> address = IpAddress::parse(text.substr(0, slash));
  const auto length = parseNumber<unsigned>(text.substr(slash + 1));
  if (!address || !length || *length > address->size() * 8) return std::nullopt;
  return Network{*address, *length};
}

// The reverse zone of the first `labels` labels of an address.
std::string reverseZone(std::span<const uint8_t> address, bool is_v4, unsigned labels) {
  std::string zone;
  for (unsigned i = labels; i-- > 0;) {
    if (is_v4) {
      fmt::format_to(std::back_inserter(zone), "{}.", address[i]);
    } else {
      fmt::format_to(std::back_inserter(zone), "{:x}.", i % 2 == 0 ? address[i / 2] >> 4 : address[i / 2] & 0xf);
    }
  }
  return zone + (is_v4 ? "in-addr.arpa." : "ip6.arpa.");
}

// All zones whose label ends where, or next after where, the network's length does: at most 2^7 of them.
std::vector<std::string> reverseZones(const Network& network) {
  const bool is_v4 = network.address.isV4();
  const unsigned bits_per_label = is_v4 ? 8 : 4;
  const unsigned labels = (network.length + bits_per_label - 1) / bits_per_label;
  const unsigned free_bits = labels * bits_per_label - network.length;
  std::array<uint8_t, 16> address{};
  std::copy_n(network.address.data(), network.address.size(), address.begin());

  std::vector<std::string> zones;
  for (unsigned i = 0; i < 1u << free_bits; ++i) {
    if (free_bits > 0) {  // the last label: what the prefix fixes, then the counter
      const unsigned byte = (labels * bits_per_label - 1) / 8;
      const unsigned shift = 8 * (byte + 1) - labels * bits_per_label;
      const unsigned kept = address[byte] & ~(((1u << free_bits) - 1) << shift);
      address[byte] = static_cast<uint8_t>(kept | i << shift);
    }
    zones.push_back(reverseZone(address, is_v4, labels));
  }
  return zones;
}

constexpr std::array kSchemes{Scheme::kDns, Scheme::kTls, Scheme::kHttps};

// Takes "scheme://" off the front of `*text`.
Result<Scheme> takeScheme(std::string_view* text) {
  const size_t end = text->find("://");
  if (end == std::string_view::npos) return Scheme::kDns;
  const std::string_view name = text->substr(0, end);
  const auto scheme = std::ranges::find(kSchemes, name, schemeName);
  if (scheme != kSchemes.end()) {
    text->remove_prefix(end + 3);
    return *scheme;
  }
  if (name == "https3" || name == "grpc" || name == "quic" || name == "unix")
    return fail(fmt::format("{}:// is not supported, only dns://, tls:// and https:// are: '{}'", name, *text));
  return fail(fmt::format("unknown scheme '{}' in '{}'", name, *text));
}

uint16_t defaultPort(Scheme scheme, uint16_t of_dns) {
  constexpr uint16_t kTlsPort = 853;
  constexpr uint16_t kHttpsPort = 443;
  switch (scheme) {
    case Scheme::kDns:
      break;
    case Scheme::kTls:
      return kTlsPort;
    case Scheme::kHttps:
      return kHttpsPort;
  }
  return of_dns;
}

// Takes ":port" off the end of `*zone`. A colon that begins no port belongs to an IPv6 network, or is a mistake.
Result<uint16_t> takePort(std::string_view* zone, uint16_t default_port) {
  const std::string_view key = *zone;
  const size_t colon = lastColon(key);
  if (colon == std::string_view::npos || parseCidr(key)) return default_port;
  if (IpAddress::parse(key)) {
    return fail(fmt::format("'{0}' is an address and not a zone, its reverse zone is '{0}/128'", key));
  }
  const std::string_view port = key.substr(colon + 1);
  if (port.empty()) return fail(fmt::format("expecting data after last colon: \"{}\"", key));
  const auto number = parseNumber<uint16_t>(port);
  if (!number) return fail(fmt::format("invalid port '{}' in '{}'", port, key));
  *zone = key.substr(0, colon);
  return *number;
}

// Characters that are more likely a mistake than part of a zone: the marks of this grammar and of zone files, blanks, controls.
// An escape takes them all (RFC 1035 §5.1).
std::optional<char> suspiciousCharacter(std::string_view zone) {
  for (size_t i = 0; i < zone.size(); ++i) {
    if (zone[i] == '\\') {
      ++i;
    } else if (static_cast<unsigned char>(zone[i]) <= ' ' ||
               std::string_view("(){}[]\":\x7f").find(zone[i]) != std::string_view::npos) {
      return zone[i];
    }
  }
  return std::nullopt;
}

std::string shown(std::string_view text) {
  constexpr size_t kCharacters = 80;
  return text.size() > kCharacters ? std::string(text.substr(0, kCharacters)) + "…" : std::string(text);
}

Result<ServerKey> makeKey(std::string_view zone, uint16_t port, Scheme scheme) {
  const auto invalid = [&](std::string_view why) {
    return fail(fmt::format("zone is not a valid domain name: '{}' ({})", shown(zone), why));
  };
  if (const auto c = suspiciousCharacter(zone)) return invalid(fmt::format("'{}' must be escaped", *c));
  const Result<dns::Name> name = dns::Name::parse(zone);
  if (!name) return invalid(name.error().message);
  std::string shown_key = fmt::format("{}:{}", name->toString(), port);
  if (scheme != Scheme::kDns) shown_key = fmt::format("{}://{}", schemeName(scheme), shown_key);
  return ServerKey{*name, port, std::move(shown_key), scheme};
}

}  // namespace

std::optional<uint16_t> dnsPortOf(const std::vector<ServerKey>& keys) {
  const auto key = std::ranges::find(keys, Scheme::kDns, &ServerKey::scheme);
  return key != keys.end() ? std::optional(key->port) : std::nullopt;
}

std::string_view schemeName(Scheme scheme) {
  switch (scheme) {
    case Scheme::kDns:
      break;
    case Scheme::kTls:
      return "tls";
    case Scheme::kHttps:
      return "https";
  }
  return "dns";
}

Result<std::vector<ServerKey>> parseServerKey(std::string_view text, uint16_t default_port) {
  std::string_view zone = text;
  const Result<Scheme> scheme = takeScheme(&zone);
  if (!scheme) return tl::unexpected(scheme.error());
  const Result<uint16_t> port = takePort(&zone, defaultPort(*scheme, default_port));
  if (!port) return tl::unexpected(port.error());

  std::vector<std::string> zones;
  if (const std::optional<Network> network = parseCidr(zone)) {
    zones = reverseZones(*network);
  } else {
    zones.emplace_back(zone);
  }

  std::vector<ServerKey> keys;
  for (const std::string& each : zones) {
    Result<ServerKey> key = makeKey(each, *port, *scheme);
    if (!key) return tl::unexpected(key.error());
    keys.push_back(std::move(*key));
  }
  return keys;
}

}  // namespace idetcd::config
