#include "resolve/upstream.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <net/if.h>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "resolve/watched_file.h"

namespace idetcd::resolve {

namespace {

constexpr uint16_t kDnsPort = 53;
constexpr uint16_t kTlsPort = 853;

std::optional<uint16_t> parsePort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

// An address, of a link-local one with its %interface.
std::optional<SocketAddress> parseScopedIp(std::string_view text, uint16_t port) {
  const size_t percent = text.find('%');
  const auto ip = IpAddress::parse(text.substr(0, percent));
  if (!ip) return std::nullopt;
  SocketAddress address{.ip = ip->unmapped(), .port = port};
  if (percent == std::string_view::npos) return address;
  address.scope_id = if_nametoindex(std::string(text.substr(percent + 1)).c_str());
  if (!ip->isV6() || !ip->isLinkLocal() || address.scope_id == 0) return std::nullopt;
  return address;
}

// IP, IP:port, [IPv6], [IPv6]:port
std::optional<SocketAddress> parseAddress(std::string_view text, uint16_t default_port) {
  if (const auto address = parseScopedIp(text, default_port)) return address;
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
  const auto number = parsePort(port);
  return number ? parseScopedIp(ip, *number) : std::nullopt;
}

}  // namespace

std::string UpstreamAddress::toString() const {
  return (protocol == UpstreamProtocol::kTls ? "tls://" : "") + address.toString();
}

Result<UpstreamTarget> parseUpstreamTarget(std::string_view text) {
  UpstreamProtocol protocol = UpstreamProtocol::kDns;
  std::string_view rest = text;
  if (const size_t colon = text.find("://"); colon != std::string_view::npos) {
    const std::string_view scheme = text.substr(0, colon);
    rest = text.substr(colon + 3);
    if (scheme == "tls") {
      protocol = UpstreamProtocol::kTls;
    } else if (scheme != "dns") {
      return fail(fmt::format("{}:// is not supported: '{}'", scheme, text));
    }
  }
  const uint16_t port = protocol == UpstreamProtocol::kTls ? kTlsPort : kDnsPort;
  if (const auto address = parseAddress(rest, port)) {
    if (address->ip.isUnspecified() || address->ip.isMulticast())
      return fail(fmt::format("no server's address: '{}'", text));
    return UpstreamTarget{.server = UpstreamAddress{.address = *address, .protocol = protocol}, .file = {}};
  }
  if (rest.size() != text.size() || rest.empty()) return fail(fmt::format("not an IP address: '{}'", text));
  std::string file(text);
  if (!WatchedFile(file).readIfChanged()) return fail(fmt::format("not an IP address or file: \"{}\"", text));
  return UpstreamTarget{.server = std::nullopt, .file = std::move(file)};
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
    if (!parsed || parsed->ip.isUnspecified() || parsed->ip.isMulticast()) continue;
    const UpstreamAddress server{.address = *parsed, .protocol = UpstreamProtocol::kDns};
    if (std::find(servers.begin(), servers.end(), server) == servers.end()) servers.push_back(server);
  }
  return servers;
}

std::optional<dns::Rcode> parseRcode(std::string_view text) {
  static constexpr auto kNames = std::to_array<std::pair<std::string_view, uint16_t>>(
      {{"NOERROR", 0},  {"FORMERR", 1},   {"SERVFAIL", 2},  {"NXDOMAIN", 3}, {"NOTIMP", 4},   {"REFUSED", 5},
       {"YXDOMAIN", 6}, {"YXRRSET", 7},   {"NXRRSET", 8},   {"NOTAUTH", 9},  {"NOTZONE", 10}, {"DSOTYPENI", 11},
       {"BADSIG", 16},  {"BADVERS", 16},  {"BADKEY", 17},   {"BADTIME", 18}, {"BADMODE", 19}, {"BADNAME", 20},
       {"BADALG", 21},  {"BADTRUNC", 22}, {"BADCOOKIE", 23}});
  const auto same = [text](const auto& entry) {
    return std::equal(text.begin(), text.end(), entry.first.begin(), entry.first.end(),
                      [](char a, char b) { return (a >= 'a' && a <= 'z' ? a - 'a' + 'A' : a) == b; });
  };
  const auto* entry = std::find_if(kNames.begin(), kNames.end(), same);
  return entry != kNames.end() ? std::optional(static_cast<dns::Rcode>(entry->second)) : std::nullopt;
}

}  // namespace idetcd::resolve
