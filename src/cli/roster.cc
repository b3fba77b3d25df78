#include "cli/roster.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "dns/message_reader.h"
#include "dns/record.h"

namespace idetcd::cli {

namespace {

using namespace std::chrono_literals;

using Clock = std::chrono::steady_clock;

// Of a response, which has the query's ID, to a question of this type.
Reply<bool> hasAddress(std::span<const uint8_t> message, dns::RrType type) {
  const dns::HeaderView header(message.data());
  if (header.rcode() == dns::Rcode::kNxDomain) return false;
  if (header.rcode() != dns::Rcode::kNoError)
    return notYet(fmt::format("the server answers {}", dns::kRcodeNames.toString(code(header.rcode()))));
  const size_t end = dns::skipName(message.data(), message.size(), dns::kHeaderSize);
  if (header.questions() != 1 || end == 0 || message.size() - end < 4)
    return notYet("the server's answer is malformed");
  dns::MessageReader reader(message, end + 4);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (record.section == dns::Section::kAnswer && record.type == code(type)) return true;
  }
  return false;
}

Reply<bool> ask(int socket, const SocketAddress& server, const dns::Name& name, dns::RrType type,
                std::chrono::milliseconds patience) {
  std::array<uint8_t, dns::kMaxQuestionSize> query;
  const size_t size = dns::writeQuestion(query.data(), dns::kFlagRd, name.wire(), code(type), code(dns::RrClass::kIn));
  if (::getrandom(query.data(), 2, 0) != 2) return failed("no random numbers");
  const auto unanswered = [&] { return notYet(fmt::format("no answer over DNS from {}", server.toString()), kFailed); };
  if (::send(socket, query.data(), size, MSG_NOSIGNAL) < 0) return unanswered();
  const Clock::time_point end = Clock::now() + patience;
  std::array<uint8_t, 4096> answer;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    pollfd one{socket, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&one, 1, static_cast<int>(left.count())) == 0) return unanswered();
    const ssize_t got = ::recv(socket, answer.data(), answer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return unanswered();
    const std::span<const uint8_t> message(answer.data(), static_cast<size_t>(got));
    if (message.size() < dns::kHeaderSize || std::memcmp(message.data(), query.data(), 2) != 0) continue;
    if (dns::HeaderView(message.data()).isResponse()) return hasAddress(message, type);
  }
}

// Whether `server` has an address of `name`, A or AAAA. Blocks for `patience` at most for each of the two. A failure that
// may pass is of code kFailed if the server is silent, kNo if it has answered with an error.
Reply<bool> resolves(const SocketAddress& server, const std::string& name, std::chrono::milliseconds patience) {
  const auto parsed = dns::Name::parse(name);
  if (!parsed) return failed(fmt::format("{} is no domain name: {}", escaped(name), parsed.error().message));
  sockaddr_storage address;
  const socklen_t length = server.toSockaddr(&address);
  const FileDescriptor socket(::socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto* any = reinterpret_cast<const sockaddr*>(&address);  // NOLINT: as the interface is
  if (!socket.isOpen() || ::connect(socket.get(), any, length) != 0)
    return notYet(fmt::format("{}: {}", server.toString(), std::strerror(errno)));
  const auto ipv4 = ask(socket.get(), server, *parsed, dns::RrType::kA, patience);
  if (!ipv4 || *ipv4) return ipv4;
  return ask(socket.get(), server, *parsed, dns::RrType::kAaaa, patience);
}

constexpr auto kPause = 300ms;
constexpr auto kShortestPatience = 1s;
constexpr auto kDnsPatience = 3s;
constexpr auto kLongest = std::chrono::hours(24 * 365);

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

Reply<nlohmann::json> readClusterStatus(const LocalNode& node, const std::optional<std::string>& pattern,
                                        std::chrono::milliseconds patience) {
  const auto said = node.get("/v1/status", patience);
  if (!said) return tl::unexpected(said.error());
  std::vector<nlohmann::json> found;
  for (const nlohmann::json& cluster : arrayAt(*said, "clusters")) {
    if (!pattern || textAt(cluster, "pattern") == *pattern) found.push_back(cluster);
  }
  if (found.empty() && pattern) return tl::unexpected(unknownPattern(*pattern, *said));
  if (found.empty()) return failed(std::string(kNoCluster));
  if (found.size() > 1)
    return failed(fmt::format("there are several clusters: choose one with --pattern: {}", patternsOf(*said)));
  return std::move(found.front());
}

std::optional<std::string> givenPattern(const Arguments& arguments) {
  const auto pattern = arguments.text("pattern");
  return pattern ? std::optional(withDot(*pattern)) : std::nullopt;
}

Reply<nlohmann::json> explained(const LocalNode& node, const std::optional<std::string>& pattern,
                                Reply<nlohmann::json> reply) {
  if (reply || reply.error().status != 404 || reply.error().code != kNo) return reply;
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
    if (const auto server = SocketAddress::parse(text)) servers.push_back(*server);
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
