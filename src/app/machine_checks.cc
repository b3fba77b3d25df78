#include "app/machine_checks.h"

#include <fstream>
#include <iterator>
#include <linux/capability.h>
#include <pwd.h>
#include <sstream>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

#include "app/ports.h"
#include "base/text.h"
#include "cli/local_node.h"
#include "control/local_socket.h"
#include "net/local_addresses.h"
#include "net/udp_socket.h"
#include "resolver/resolver_settings.h"
#include "sandbox/confinement.h"

namespace idetcd::app {
namespace {

using resolve::Finding;
using resolve::Findings;
using resolve::Severity;

constexpr uint16_t kDnsPort = 53;
constexpr std::chrono::milliseconds kServerPatience{1500};
constexpr const char* kStubUpstreams = "/run/systemd/resolve/resolv.conf";  // the servers that systemd-resolved asks
constexpr std::string_view kRecipes = "see \"As the resolver of the machine\" in README.md, or the recipes";

std::string joined(std::span<const SocketAddress> addresses) {
  std::vector<std::string> texts;
  for (const SocketAddress& address : addresses) texts.push_back(address.toString());
  return fmt::format("{}", fmt::join(texts, ", "));
}

// A file of the kernel's, which has no size.
std::string contentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string userName() {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  if (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return fmt::to_string(::geteuid());
}

// --- port ---

std::string wayOut(const PortConflict& conflict) {
  if (!conflict.holder) return "give one of them another port";
  if (conflict.holder->program == "systemd-resolve")
    return "`bind 127.0.0.1 ::1`, which systemd-resolved leaves free, or `DNSStubListener=no` in resolved.conf; the "
           "recipes have both";
  return "stop that program, or listen elsewhere with `bind`";
}

// Blocks whose addresses this machine does not have.
Findings missingAddresses(const Plan& plan) {
  Findings findings;
  const std::vector<SocketAddress> own = net::localAddresses();
  for (const resolve::Block& block : plan.blocks) {
    const auto bound = boundAddresses(block);
    if (!bound) {
      findings.push_back({Severity::kError, bound.error().message, "correct `bind`, or bring the interface up"});
      continue;
    }
    for (const SocketAddress& address : *bound) {
      const auto is_same = [&address](const SocketAddress& one) { return one.ip == address.ip; };
      if (address.ip.isUnspecified() || address.ip.isLoopback() || std::ranges::any_of(own, is_same)) continue;
      findings.push_back({Severity::kError,
                          fmt::format("no interface of this machine has {}, on which the Corefile has the server listen",
                                      address.ip.toString()),
                          "correct `bind`, or bring the interface up"});
    }
  }
  return findings;
}

bool mayOpen(uint16_t port) {
  if (sandbox::hasCapability(CAP_NET_BIND_SERVICE)) return true;
  std::istringstream text(contentOf("/proc/sys/net/ipv4/ip_unprivileged_port_start"));
  uint32_t first = 1024;
  text >> first;
  return port >= first;
}

Findings checkPorts(const Plan& plan) {
  Findings findings = missingAddresses(plan);
  for (const PortConflict& conflict : portConflicts(plan))
    findings.push_back({Severity::kError, conflict.text, wayOut(conflict)});
  const std::vector<SocketAddress> wanted = wantedAddresses(plan);
  if (!findings.empty() || wanted.empty()) return findings;
  const auto holders = net::portHolders("udp", wanted.front());
  if (!holders.empty())
    return {{Severity::kOk, fmt::format("{}: {}", joined(wanted), holders.front().toString()), {}}};
  findings.push_back({Severity::kOk, fmt::format("{}: free", joined(wanted)), {}});
  const auto refused = std::ranges::find_if(wanted, [](const SocketAddress& one) { return !mayOpen(one.port); });
  if (refused != wanted.end()) {
    findings.push_back({Severity::kNote, fmt::format("user {} may not open port {}", userName(), refused->port),
                        "start the server by its unit, or as root, or give it CAP_NET_BIND_SERVICE"});
  }
  return findings;
}

// --- resolv.conf ---

bool isServed(const IpAddress& ip, std::span<const SocketAddress> served, std::span<const SocketAddress> own) {
  const auto is_own = [&ip](const SocketAddress& one) { return one.ip == ip; };
  const bool is_here = ip.isLoopback() || std::ranges::any_of(own, is_own);
  return std::ranges::any_of(served, [&](const SocketAddress& one) {
    if (one.port != kDnsPort) return false;
    return one.ip == ip || (is_here && one.ip.isUnspecified() && one.ip.family() == ip.family());
  });
}

bool isStub(const IpAddress& ip) { return ip == IpAddress::v4({127, 0, 0, 53}) || ip == IpAddress::v4({127, 0, 0, 54}); }

bool isSystemdResolved(const IpAddress& ip) {
  const auto holders = net::portHolders("udp", {.ip = ip, .port = kDnsPort});
  return std::ranges::any_of(holders, [](const net::PortHolder& one) {
    return one.program == "systemd-resolve" || one.user == "systemd-resolve";
  });
}

Finding judgeStub(std::span<const SocketAddress> served, std::span<const SocketAddress> own) {
  const auto upstreams = node::readResolverConfig(kStubUpstreams);
  const bool asks_us = upstreams && std::ranges::any_of(upstreams->servers, [&](const IpAddress& ip) {
                         return isServed(ip, served, own);
                       });
  if (asks_us) return {Severity::kOk, "programs ask systemd-resolved, which asks this server", {}};
  return {Severity::kNote, "programs ask systemd-resolved, which does not ask this server for all names",
          "a drop-in with `DNS=` and `Domains=~ZONE` has it ask for the cluster's: see the recipes; `resolvectl` shows it"};
}

Findings checkResolver(const std::shared_ptr<const Plan>& plan) {
  const std::vector<SocketAddress> served = plan ? wantedAddresses(*plan) : std::vector<SocketAddress>();
  const std::vector<SocketAddress> own = net::localAddresses();
  const auto config = node::readResolverConfig();
  if (!config)
    return {{Severity::kWarning, config.error().message, "without it programs ask 127.0.0.1, and search nothing"}};
  if (!config->servers.empty() && isStub(config->servers.front()) && isSystemdResolved(config->servers.front()))
    return {judgeStub(served, own)};
  return judgeResolver(*config, served, own);
}

// --- server ---

cli::Reply<nlohmann::json> askServer(const std::optional<std::string>& socket) {
  return cli::LocalNode(socket, control::socketDirectory()).get("/v1/status", kServerPatience);
}

// Somebody has its socket.
bool isThere(const std::optional<std::string>& socket) {
  const auto path = cli::LocalNode(socket, control::socketDirectory()).socketPath();
  return path && ::access(path->c_str(), W_OK) == 0 && cli::isListenedAt(*path);
}

Findings checkServer(const std::optional<std::string>& socket) {
  const auto status = askServer(socket);
  if (status) return judgeStatus(*status, IDETCD_VERSION);
  if (status.error().status != 0) {
    return {{Severity::kError,
             fmt::format("the server runs, but answers with the HTTP status {}", status.error().status),
             "journalctl -u idetcd says more, unless another program has the socket"}};
  }
  if (isThere(socket)) {
    return {{Severity::kError, fmt::format("the server runs, but gives no answer: {}", status.error().message),
             "journalctl -u idetcd, and the state of the process in ps, say what it waits for; else systemctl restart idetcd"}};
  }
  return {{socket ? Severity::kError : Severity::kNote, fmt::format("no server answers: {}", status.error().message),
           "systemctl enable --now idetcd; journalctl -u idetcd says why it does not run"}};
}

// --- limits ---

// Enough that no kind of descriptor is in want of one when each loop has one client with all the connections that it may
// have.
uint64_t neededDescriptors(const Plan& plan) {
  constexpr uint64_t kBase = 128;           // log, etcd, files, listeners of operators
  constexpr uint64_t kOfAForwardLoop = 64;  // sockets and connections to upstreams
  size_t loops = 1;
  resolve::TcpLimits tcp;
  bool forwards = false;
  for (const resolve::Block& block : plan.blocks) {
    forwards |= !resolver::settingsOf(block).forwards.empty();
    for (const auto& [type, directive] : block.directives) {
      loops = std::max(loops, directive->workerCount());
      directive->limitTcp(tcp);
    }
  }
  const uint64_t listeners = 2 * wantedAddresses(plan).size();
  return kBase + loops * (listeners + tcp.max_per_client + (forwards ? kOfAForwardLoop : 0));
}

std::optional<uint64_t> ownLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_max;  // the server raises its own to that
}

Finding judgeDescriptors(const Plan& plan, const std::optional<std::string>& socket) {
  std::optional<uint64_t> limit = ownLimit();
  std::string_view whose = "of this user's programs";
  if (const auto status = askServer(socket)) {
    const std::string limits = contentOf(fmt::format("/proc/{}/limits", cli::wholeAt(*status, "pid")));
    if (!limits.empty()) limit = maxOpenFiles(limits);
    if (!limits.empty()) whose = "of the server that runs";
  }
  const uint64_t needed = neededDescriptors(plan);
  if (!limit || *limit >= needed)
    return {Severity::kOk, fmt::format("open files {}: {}", whose, limit ? fmt::to_string(*limit) : "no limit"), {}};
  return {Severity::kWarning,
          fmt::format("open files {} are limited to {}, the Corefile needs about {}", whose, *limit, needed),
          "LimitNOFILE=65536 in the unit, or ulimit -n"};
}

std::optional<Finding> judgeReceiveBuffer() {
  std::istringstream text(contentOf("/proc/sys/net/core/rmem_max"));
  int64_t bytes = 0;
  if (!(text >> bytes) || bytes >= net::UdpSocket::kReceiveBuffer) return std::nullopt;
  return Finding{Severity::kNote,
                 fmt::format("net.core.rmem_max is {}: in a burst more queries than fit in that are lost", bytes),
                 fmt::format("sysctl -w net.core.rmem_max={}, if idetcd_queries_dropped_total{{reason=\"receive_buffer\"}} "
                             "rises",
                             net::UdpSocket::kReceiveBuffer)};
}

// --- clock ---

Findings checkClock() {
  timex clock{};
  const int state = ::adjtimex(&clock);
  if (state < 0) return {{Severity::kNote, "the kernel does not say whether the clock is synchronised", {}}};
  if (state == TIME_ERROR || (clock.status & STA_UNSYNC) != 0) {
    return {{Severity::kNote,
             "the kernel does not know the clock to be synchronised: certificates and signed zones are judged by it, "
             "leases are not",
             "chrony, or systemd-timesyncd; `timedatectl` shows it"}};
  }
  return {{Severity::kOk, fmt::format("synchronised, within {} ms at most", clock.maxerror / 1000), {}}};
}

}  // namespace

Findings judgeResolver(const node::ResolverConfig& config, std::span<const SocketAddress> served,
                       std::span<const SocketAddress> own) {
  constexpr size_t kMostServers = 3;  // glibc's MAXNS
  Findings findings;
  std::vector<IpAddress> servers = config.servers;
  if (servers.empty()) servers.push_back(IpAddress::v4({127, 0, 0, 1}));  // resolv.conf(5)
  const auto place =
      std::ranges::find_if(servers, [&](const IpAddress& ip) { return isServed(ip, served, own); }) - servers.begin();
  if (place == static_cast<ptrdiff_t>(servers.size())) {
    findings.push_back({Severity::kNote,
                        fmt::format("programs ask {}, not this server", servers.front().toString()),
                        std::string(kRecipes)});
  } else if (place >= static_cast<ptrdiff_t>(kMostServers)) {
    findings.push_back({Severity::kWarning, "this server is behind three others, and glibc asks three at most",
                        "name it first"});
  } else if (place > 0) {
    findings.push_back({Severity::kWarning,
                        fmt::format("programs ask {} first, and this server only where that one is silent",
                                    servers.front().toString()),
                        "name this server first; `forward` asks the others"});
  } else {
    findings.push_back({Severity::kOk, fmt::format("programs ask this server, at {}", servers.front().toString()), {}});
  }
  if (config.ndots > 1 && !config.search.empty()) {
    findings.push_back({Severity::kNote,
                        fmt::format("ndots:{}: names with fewer dots are asked with each of {} domains of `search` "
                                    "first",
                                    config.ndots, config.search.size()),
                        "write names with the dot at their end, or ndots:1"});
  }
  return findings;
}

Findings judgeStatus(const nlohmann::json& status, std::string_view version) {
  using cli::escaped;
  Findings findings;
  const std::string running = cli::textAt(status, "version").value_or("?");
  findings.push_back({Severity::kOk,
                      fmt::format("idetcd {}, process {}, {}", escaped(running), cli::wholeAt(status, "pid"),
                                  cli::flagAt(status, "ready") ? "ready" : "not ready"),
                      {}});
  if (running != version) {
    findings.push_back({Severity::kNote, fmt::format("this program is version {}, the server {}", version, escaped(running)),
                        "restart the server"});
  }
  const std::vector<std::string> missing = cli::textsAt(status, "not_ready");
  for (const std::string& each : missing)
    findings.push_back({Severity::kError, fmt::format("not ready: {}", escaped(each)), "idetcd status says more"});
  if (missing.empty() && !cli::flagAt(status, "ready"))
    findings.push_back({Severity::kError, "not ready", "idetcd status says more"});
  for (const std::string& reason : cli::textsAt(status, "degraded"))
    findings.push_back({Severity::kWarning, fmt::format("degraded: {}", escaped(reason)), "idetcd status says more"});
  return findings;
}

std::optional<uint64_t> maxOpenFiles(std::string_view limits) {
  constexpr std::string_view kName = "Max open files";
  const size_t begin = limits.find(kName);
  if (begin == std::string_view::npos) return std::nullopt;
  std::istringstream words{std::string(limits.substr(begin + kName.size()))};
  std::string soft;
  words >> soft;
  return parseNumber<uint64_t>(soft);
}

std::vector<resolve::Check> machineChecks(const std::shared_ptr<const Plan>& plan,
                                          const std::optional<std::string>& socket) {
  std::vector<resolve::Check> checks;
  if (plan) checks.push_back({"port", [plan] { return checkPorts(*plan); }});
  checks.push_back({"resolver", [plan] { return checkResolver(plan); }});
  checks.push_back({"server", [socket] { return checkServer(socket); }});
  if (plan) {
    checks.push_back({"limits", [plan, socket] {
                        Findings findings{judgeDescriptors(*plan, socket)};
                        if (auto buffer = judgeReceiveBuffer()) findings.push_back(std::move(*buffer));
                        return findings;
                      }});
  }
  checks.push_back({"clock", checkClock});
  return checks;
}

}  // namespace idetcd::app
