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
  std::vector<Slot> found;
  const auto held = cluster.undrained();
  if (held.size() < members) return notYet(fmt::format("{} of {} names are held", held.size(), members));
  const SocketAddress server{.ip = IpAddress::v4({127, 0, 0, 1}), .port = port};
  for (const Slot& slot : held) {
    const auto resolved = resolves(server, slot.name, kDnsPatience);
    if (!resolved) return tl::unexpected(resolved.error());
    if (*resolved) found.push_back(slot);
    if (deadline.isOver()) break;
  }
  if (found.size() < members) return notYet(fmt::format("{} of {} names are held and resolve", found.size(), members));
  return found;
}

}  // namespace idetcd::cli
