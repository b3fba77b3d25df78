#include "resolver/upstream.h"

#include <net/if.h>
#include <sstream>

#include "base/file_watch.h"
#include "base/text.h"
#include "dns/name.h"

namespace idetcd::resolver {

namespace {

constexpr uint16_t kDnsPort = 53;
constexpr uint16_t kTlsPort = 853;
constexpr uint16_t kHttpsPort = 443;

struct Scheme {
  std::string_view name;
  UpstreamProtocol protocol;
  uint16_t port;
};
constexpr std::array<Scheme, 3> kSchemes{{{"dns", UpstreamProtocol::kDns, kDnsPort},
                                          {"tls", UpstreamProtocol::kTls, kTlsPort},
                                          {"https", UpstreamProtocol::kHttps, kHttpsPort}}};

struct ScopedAddress {
  SocketAddress address;
  std::string interface;
};

// An address, of a link-local one with its %interface, which says nothing of any other.
std::optional<ScopedAddress> parseScopedIp(std::string_view text, uint16_t port) {
  const size_t percent = text.find('%');
  const auto ip = IpAddress::parse(text.substr(0, percent));
  if (!ip) return std::nullopt;
  ScopedAddress scoped{.address = {.ip = ip->unmapped(), .port = port}, .interface = {}};
  if (percent == std::string_view::npos) return scoped;
  if (!ip->isV6() || percent + 1 == text.size()) return std::nullopt;
  if (!ip->isLinkLocal()) return scoped;
  scoped.interface = text.substr(percent + 1);
  scoped.address.scope_id = if_nametoindex(scoped.interface.c_str());
  return scoped;
}

// IP, IP:port, [IPv6], [IPv6]:port
std::optional<ScopedAddress> parseAddress(std::string_view text, uint16_t default_port) {
  if (auto address = parseScopedIp(text, default_port)) return address;
  std::string_view ip = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    ip = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (rest.empty()) return ip.find(':') != std::string_view::npos ? parseScopedIp(ip, default_port) : std::nullopt;
    if (rest.front() != ':') return std::nullopt;
    port = rest.substr(1);
  } else {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    ip = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  const auto number = parseNumber<uint16_t>(port);
  return number && *number != 0 ? parseScopedIp(ip, *number) : std::nullopt;
}

bool isLinkLocal(std::string_view text) {
  if (text.starts_with('[')) text.remove_prefix(1);
  const auto ip = IpAddress::parse(text);
  return ip && ip->isV6() && ip->isLinkLocal();
}

struct NamedAddress {
  std::string address;
  std::string server_name;  // may be empty
};

// IP%NAME, IP%NAME:port, [IPv6%NAME]:port and [IPv6]%NAME:port apart. Of a link-local address the first %… is its
// interface.
NamedAddress splitServerName(std::string_view text) {
  const size_t percent = text.rfind('%');
  if (percent == std::string_view::npos || isLinkLocal(text.substr(0, percent))) return {std::string(text), {}};
  std::string ip(text.substr(0, percent));
  std::string_view name = text.substr(percent + 1);
  const size_t colon = std::min(name.rfind(':'), name.size());
  const std::string port(name.substr(colon));
  name = name.substr(0, colon);
  if (name.ends_with(']')) name.remove_suffix(1);
  const bool is_open = ip.starts_with('[') && !ip.ends_with(']');
  if (is_open) ip += ']';
  if (ip.find(':') != std::string::npos && !ip.starts_with('[')) ip = '[' + ip + ']';
  return {ip + port, std::string(name)};
}

// NAME, NAME:port. What ends in a number is a mistyped address (RFC 1123 §2.1).
std::optional<UpstreamHost> parseHost(std::string_view text, uint16_t default_port) {
  const size_t colon = std::min(text.find(':'), text.size());
  std::string_view name = text.substr(0, colon);
  const auto port = colon == text.size() ? default_port : parseNumber<uint16_t>(text.substr(colon + 1)).value_or(0);
  const auto is_of_host = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  const std::string folded = lowerCase(name);
  if (port == 0 || name.empty() || !std::ranges::all_of(folded, is_of_host)) return std::nullopt;
  if (name.ends_with('.')) name.remove_suffix(1);
  const std::string_view last = name.substr(name.rfind('.') + 1);
  if (last.empty() || parseNumber<uint64_t>(last)) return std::nullopt;
  const auto parsed = dns::Name::parse(folded);
  return parsed ? std::optional(UpstreamHost{.name = *parsed, .port = port}) : std::nullopt;
}

}  // namespace

std::string UpstreamAddress::toString() const {
  if (!isEncrypted(protocol)) return address.toString();
  return (protocol == UpstreamProtocol::kTls ? "tls://" : "https://") + address.toString();
}

Result<UpstreamTarget> parseUpstreamTarget(std::string_view text) {
  const Scheme* scheme = kSchemes.data();
  std::string_view rest = text;
  if (const size_t colon = text.find("://"); colon != std::string_view::npos) {
    rest = text.substr(colon + 3);
    scheme = std::ranges::find(kSchemes, text.substr(0, colon), &Scheme::name);
    if (scheme == kSchemes.end()) return fail(fmt::format("{}:// is not supported: '{}'", text.substr(0, colon), text));
  }
  const UpstreamProtocol protocol = scheme->protocol;
  if (protocol == UpstreamProtocol::kHttps && rest.find('/') != std::string_view::npos)
    return fail(fmt::format("https:// has no path here, it is always /dns-query: '{}'", text));
  const NamedAddress named = isEncrypted(protocol) ? splitServerName(rest) : NamedAddress{std::string(rest), {}};
  if (auto scoped = parseAddress(named.address, scheme->port)) {
    if (scoped->address.ip.isUnspecified() || scoped->address.ip.isMulticast())
      return fail(fmt::format("no server's address: '{}'", text));
    if (!named.server_name.empty() && !dns::Name::parse(named.server_name))
      return fail(fmt::format("not a server's name: '{}'", named.server_name));
    return UpstreamTarget{.server = UpstreamAddress{.address = scoped->address,
                                                    .protocol = protocol,
                                                    .server_name = named.server_name,
                                                    .interface = std::move(scoped->interface)},
                          .file = {}};
  }
  std::string file(text);
  // A path is of a file, though it is not there yet: at the start it may come to be.
  const bool may_be_file = rest.size() == text.size() && !rest.empty();
  if (may_be_file && (rest.starts_with('/') || WatchedFile(file).readIfChanged())) {
    return UpstreamTarget{.server = std::nullopt, .file = std::move(file)};
  }
  if (auto host = parseHost(rest, scheme->port)) {
    host->protocol = protocol;
    return UpstreamTarget{.server = std::nullopt, .file = {}, .host = std::move(host)};
  }
  return fail(fmt::format("not an IP address, file or host name: '{}'", text));
}

std::vector<UpstreamAddress> parseResolvConf(const std::string& text) {
  std::vector<UpstreamAddress> servers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string keyword;
    std::string address;
    if (!(words >> keyword >> address) || keyword != "nameserver") continue;
    const auto parsed = parseAddress(address, kDnsPort);
    if (!parsed || parsed->address.ip.isUnspecified() || parsed->address.ip.isMulticast()) continue;
    const UpstreamAddress server{.address = parsed->address, .interface = parsed->interface};
    if (std::find(servers.begin(), servers.end(), server) == servers.end()) servers.push_back(server);
  }
  return servers;
}

}  // namespace idetcd::resolver
