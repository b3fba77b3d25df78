#include "cli/roster.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/dns_probe.h"
#include "cli/http_client.h"
#include "cli/text.h"

namespace idetcd::cli {

using namespace std::chrono_literals;

namespace {

constexpr auto kPause = 300ms;
constexpr auto kShortestPatience = 5s;
constexpr auto kDnsPatience = 3s;
constexpr auto kLongest = std::chrono::hours(24 * 365);

// Where this machine's server may listen: `bind` decides.
std::vector<SocketAddress> serversOf(const Cluster& cluster, uint16_t port) {
  std::vector<SocketAddress> servers{{.ip = IpAddress::v4({127, 0, 0, 1}), .port = port}};
  std::vector<std::string> others{"::1"};
  for (const Slot& slot : cluster.slots) {
    if (slot.own) others.insert(others.end(), slot.addresses.begin(), slot.addresses.end());
  }
  for (const std::string& text : others) {
    if (const auto ip = IpAddress::parse(text)) servers.push_back({.ip = *ip, .port = port});
  }
  return servers;
}

// Asks one after the other until one answers, which is `server` then. The failure is that of the first.
Reply<bool> resolvesAnywhere(const Cluster& cluster, const std::string& name, uint16_t port,
                             std::optional<SocketAddress>* server) {
  std::optional<Reply<bool>> first;
  for (const SocketAddress& candidate : serversOf(cluster, port)) {
    auto resolved = resolves(candidate, name, kDnsPatience);
    if (resolved) {
      *server = candidate;
      return resolved;
    }
    if (!first) first = std::move(resolved);
  }
  return *first;
}

}  // namespace

Deadline::Deadline(std::optional<std::chrono::nanoseconds> time) {
  if (time) end_ = Clock::now() + std::min<std::chrono::nanoseconds>(*time, kLongest);
}

std::chrono::milliseconds Deadline::patience() const {
  if (!end_) return LocalNode::kPatience;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end_ - Clock::now());
  return std::clamp<std::chrono::milliseconds>(left, kShortestPatience, LocalNode::kPatience);
}

void Deadline::pause() const {
  auto time = std::chrono::nanoseconds(kPause);
  if (end_) time = std::clamp<std::chrono::nanoseconds>(*end_ - Clock::now(), 0ns, time);
  std::this_thread::sleep_for(time);
}

std::string target(std::string_view path, std::string_view parameter, const std::optional<std::string>& value) {
  return value ? fmt::format("{}?{}={}", path, parameter, percentEncoded(*value)) : std::string(path);
}

Reply<nlohmann::json> readMembers(const LocalNode& node, const std::optional<std::string>& pattern,
                                  std::chrono::milliseconds patience) {
  auto said = node.get(target("/v1/members", "pattern", pattern), patience);
  if (!said && said.error().code == kNo) {
    said.error().code = kFailed;  // misspelt
    if (pattern) said.error().message = fmt::format("the server has no pattern {}", escaped(*pattern));
  }
  return said;
}

Reply<Cluster> readCluster(const LocalNode& node, const std::optional<std::string>& pattern,
                           std::chrono::milliseconds patience) {
  const auto said = readMembers(node, pattern, patience);
  if (!said) return tl::unexpected(said.error());
  return onlyCluster(*said);
}

Reply<std::vector<Slot>> exactly(const Cluster& cluster, std::optional<uint64_t> members) {
  std::vector<Slot> found = cluster.undrained();
  if (members && found.size() != *members)
    return notYet(fmt::format("{} names are held, not {}", found.size(), *members));
  if (found.empty()) return notYet("no name is held");
  return found;
}

Reply<std::vector<Slot>> atLeastResolved(const Cluster& cluster, uint64_t members, uint16_t port,
                                         const Deadline& deadline) {
  const auto held = cluster.undrained();
  if (held.size() < members) return notYet(fmt::format("{} of {} names are held", held.size(), members));
  std::vector<Slot> found;
  std::optional<SocketAddress> server;  // that has answered
  for (const Slot& slot : held) {
    const auto resolved =
        server ? resolves(*server, slot.name, kDnsPatience) : resolvesAnywhere(cluster, slot.name, port, &server);
    if (!resolved) return tl::unexpected(resolved.error());
    if (*resolved) found.push_back(slot);
    if (deadline.isOver()) break;
  }
  if (found.size() < members) return notYet(fmt::format("{} of {} names are held and resolve", found.size(), members));
  return found;
}

}  // namespace idetcd::cli
