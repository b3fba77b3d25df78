#include "cli/roster.h"

#include "base/text.h"
#include "cli/dns_probe.h"
#include "cli/http_client.h"
#include "cli/text.h"

namespace idetcd::cli {

using namespace std::chrono_literals;

namespace {

constexpr auto kPause = 300ms;
constexpr auto kShortestPatience = 1s;
constexpr auto kDnsPatience = 3s;
constexpr auto kLongest = std::chrono::hours(24 * 365);

// "127.0.0.1:53", "[::1]:53"
std::optional<SocketAddress> parseServer(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto port = parseNumber<uint16_t>(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto ip = IpAddress::parse(host);
  if (!port || *port == 0 || !ip) return std::nullopt;
  return SocketAddress{.ip = *ip, .port = *port};
}

// Asks for names, each at one server after the other until one resolves it: another program may answer at one of the
// addresses. What has resolved a name is asked first for the next one; what does not answer is not asked again.
class Prober {
 public:
  explicit Prober(std::vector<SocketAddress> servers) : servers_(std::move(servers)) {}

  bool resolves(const std::string& name, std::chrono::milliseconds patience) {
    for (size_t i = 0; i < servers_.size();) {
      const auto resolved = cli::resolves(servers_[i], name, patience);
      if (resolved && *resolved) {
        std::rotate(servers_.begin(), servers_.begin() + static_cast<ptrdiff_t>(i),
                    servers_.begin() + static_cast<ptrdiff_t>(i) + 1);
        return true;
      }
      if (!resolved && reason_.empty()) reason_ = resolved.error().message;
      const bool is_silent = !resolved && resolved.error().may_pass && resolved.error().code == kFailed;
      if (is_silent && (servers_.size() > 1 || ++lost_ > 1)) {  // one query to the last of them may get lost
        servers_.erase(servers_.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    return false;
  }
  // Why the first of those that were no answer was none; empty: there was none.
  const std::string& reason() const { return reason_; }

 private:
  std::vector<SocketAddress> servers_;
  std::string reason_;
  int lost_ = 0;
};

}  // namespace

Deadline::Deadline(std::optional<std::chrono::nanoseconds> time) {
  if (time) end_ = Clock::now() + std::min<std::chrono::nanoseconds>(*time, kLongest);
}

Deadline Deadline::once() {
  Deadline deadline(0ns);
  deadline.is_once_ = true;
  return deadline;
}

std::chrono::milliseconds Deadline::patience() const {
  if (!end_ || is_once_) return LocalNode::kReadPatience;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end_ - Clock::now());
  return std::clamp<std::chrono::milliseconds>(left, kShortestPatience, LocalNode::kReadPatience);
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
  return explained(node, pattern, node.get(target("/v1/members", "pattern", pattern), patience));
}

std::optional<std::string> givenPattern(const Arguments& arguments) {
  const auto pattern = arguments.text("pattern");
  return pattern ? std::optional(withDot(*pattern)) : std::nullopt;
}

Reply<nlohmann::json> explained(const LocalNode& node, const std::optional<std::string>& pattern,
                                Reply<nlohmann::json> reply) {
  if (reply || reply.error().status != 404) return reply;
  reply.error().code = kFailed;  // misspelt
  if (!pattern) return reply;
  if (const auto said = node.get("/v1/status", LocalNode::kReadPatience))
    return tl::unexpected(unknownPattern(*pattern, *said));
  reply.error().message = fmt::format("the server has no pattern {}", escaped(*pattern));
  return reply;
}

Reply<Cluster> readCluster(const LocalNode& node, const std::optional<std::string>& pattern,
                           std::chrono::milliseconds patience) {
  const auto said = readMembers(node, pattern, patience);
  if (!said) return tl::unexpected(said.error());
  return onlyCluster(*said);
}

Reply<std::vector<HeldSlot>> exactly(const Cluster& cluster, std::optional<uint64_t> members) {
  std::vector<HeldSlot> found = cluster.usable();
  if (members && found.size() != *members)
    return notYet(fmt::format("{} names are held, not {}", found.size(), *members));
  if (found.empty()) return notYet("no name is held");
  return found;
}

Reply<std::vector<SocketAddress>> serversOf(const LocalNode& node, const Cluster& cluster) {
  std::vector<SocketAddress> servers;
  for (const std::string& text : cluster.servers) {
    if (const auto server = parseServer(text)) servers.push_back(*server);
  }
  if (!servers.empty()) return servers;
  const auto port = node.port();
  if (!port) return tl::unexpected(port.error());
  std::vector<std::string> ips{"127.0.0.1", "::1"};
  for (const HeldSlot& slot : cluster.slots) {
    if (slot.own) ips.insert(ips.end(), slot.addresses.begin(), slot.addresses.end());
  }
  for (const std::string& text : ips) {
    if (const auto ip = IpAddress::parse(text)) servers.push_back({.ip = *ip, .port = *port});
  }
  return servers;
}

Reply<std::vector<HeldSlot>> atLeastResolved(const Cluster& cluster, uint64_t members,
                                         const std::vector<SocketAddress>& servers, const Deadline& deadline) {
  const auto held = cluster.usable();
  if (held.size() < members) return notYet(fmt::format("{} of {} names are held", held.size(), members));
  std::vector<HeldSlot> found;
  Prober prober(servers);
  for (const HeldSlot& slot : held) {
    const auto begin = Deadline::Clock::now();
    const auto patience = std::min<std::chrono::milliseconds>(deadline.patience(), kDnsPatience);
    if (prober.resolves(slot.name, patience)) found.push_back(slot);
    // Nobody answers, or slowly: with many names that were minutes.
    if (deadline.isOver() && Deadline::Clock::now() - begin >= kShortestPatience) break;
  }
  if (found.size() >= members) return found;
  return notYet(fmt::format("{} of {} names are held and resolve{}{}", found.size(), members,
                            prober.reason().empty() ? "" : ": ", prober.reason()));
}

}  // namespace idetcd::cli
