#include <csignal>
#include <cstdlib>
#include <unistd.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/job.h"
#include "cli/roster.h"
#include "cli/slots.h"
#include "cli/text.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;
using Variables = std::vector<std::pair<std::string, std::string>>;

// As `on-claim` (naming/ownership_notifier.cc), with the name's final dot, and the pattern.
Variables variablesOf(const json& cluster) {
  const auto number = [&](std::string_view key) {
    const auto found = cluster.find(key);
    return found != cluster.end() && found->is_number_integer() ? std::to_string(found->get<int64_t>()) : std::string();
  };
  std::string ipv4;
  std::string ipv6;
  for (const json& address : arrayAt(cluster, "addresses")) {
    if (!address.is_string()) continue;
    auto text = address.get<std::string>();
    std::string& place = text.find(':') == std::string::npos ? ipv4 : ipv6;
    if (place.empty()) place = std::move(text);
  }
  return {{"IDETCD_NAME", textAt(cluster, "name").value_or("")},
          {"IDETCD_ID", number("id")},
          {"IDETCD_TOKEN", number("token")},
          {"IDETCD_UUID", textAt(cluster, "node").value_or("")},
          {"IDETCD_IPV4", std::move(ipv4)},
          {"IDETCD_IPV6", std::move(ipv6)},
          {"IDETCD_GENERATION", number("generation")},
          {"IDETCD_PATTERN", textAt(cluster, "pattern").value_or("")}};
}

// Of the cluster in which this node has a name.
Reply<json> readOwnCluster(const LocalNode& node, const std::optional<std::string>& pattern, std::chrono::milliseconds patience) {
  auto found = readClusterStatus(node, pattern, patience);
  if (found && !textAt(*found, "name")) return notYet("this node has no name");
  return found;
}

// `--barrier` and `--members` are one.
std::optional<uint64_t> membersWanted(const Arguments& arguments) {
  const auto barrier = arguments.number("barrier");
  return barrier ? barrier : arguments.number("members");
}

Reply<json> awaitName(const Call& call, const Deadline& deadline) {
  const auto pattern = givenPattern(call.arguments);
  const auto members = membersWanted(call.arguments);
  return keepTrying<json>(deadline, [&]() -> Reply<json> {
    auto own = readOwnCluster(call.node, pattern, deadline.patience());
    if (!own || !members) return own;
    const auto cluster = readCluster(call.node, textAt(*own, "pattern"), deadline.patience());
    if (!cluster) return tl::unexpected(cluster.error());
    const auto servers = serversOf(call.node, *cluster);
    if (!servers) return tl::unexpected(servers.error());
    const auto there = atLeastResolved(*cluster, *members, *servers, deadline);
    if (!there) return tl::unexpected(there.error());
    return own;
  });
}

void addToEnvironment(const json& cluster) {
  for (const auto& [name, value] : variablesOf(cluster))
    ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
}

CommandResult refusedBySystem(std::string_view command, int error) {
  return {.code = error == ENOENT ? 127 : 126,
          .out = {},
          .err = fmt::format("{}: {}\n", escaped(command), std::strerror(error))};
}

// What the job gets to know of a change of the members.
struct Reaction {
  enum class Kind : uint8_t { kIgnore, kSignal, kRestart };
  Kind kind = Kind::kIgnore;
  int signal = 0;
};

// "HUP", "SIGHUP" or "1".
std::optional<int> signalOf(std::string_view name) {
  if (const auto number = parseNumber<int>(name)) return *number > 0 && *number < SIGRTMIN ? number : std::nullopt;
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < SIGRTMIN; ++number) {
    const char* const known = ::sigabbrev_np(number);
    if (known != nullptr && known == name) return number;
  }
  return std::nullopt;
}

// Nothing: the command is not watched.
Result<std::optional<Reaction>> reactionOf(const Arguments& arguments) {
  const auto text = arguments.text("on-change");
  if (!text) {
    if (arguments.has("settle")) return fail("--settle is for --on-change");
    return std::optional<Reaction>();
  }
  if (*text == "ignore") return Reaction{};
  if (*text == "restart") return Reaction{.kind = Reaction::Kind::kRestart};
  constexpr std::string_view kSignal = "signal:";
  if (text->starts_with(kSignal)) {
    if (const auto number = signalOf(std::string_view(*text).substr(kSignal.size())))
      return Reaction{.kind = Reaction::Kind::kSignal, .signal = *number};
  }
  return fail(fmt::format("--on-change: '{}' is none of signal:NAME, restart and ignore", escaped(*text)));
}

// Runs the command for as long as this node has its name, and tells it of changes.
class Supervisor {
 public:
  Supervisor(const Call& call, Reaction reaction)
      : call_(call),
        reaction_(reaction),
        settle_(call.arguments.duration("settle").value_or(kSettle)) {}

  // `cluster`: of the status, with the name.
  CommandResult run(json cluster) {
    while (true) {
      members_ = readMembersText();  // before the command reads them
      if (const auto started = job_.start(call_.arguments.words()); !started)
        return refusedBySystem(call_.arguments.words().front(), started.error());
      own_ = std::move(cluster);
      noteOwned(own_);
      changed_at_.reset();
      if (const auto end = watch()) return *end;
      auto next = awaitNext();
      if (!next) return std::move(next.error());
      cluster = std::move(*next);
      addToEnvironment(cluster);
    }
  }

 private:
  static constexpr std::chrono::seconds kSettle{2};
  static constexpr std::chrono::milliseconds kInterval{250};
  static constexpr std::chrono::milliseconds kStatusPatience{1000};
  static constexpr std::chrono::milliseconds kMembersPatience{3000};
  static constexpr int kMostSettles = 10;  // then it is told, though the members do not settle
  static constexpr int kLost = 75;  // EX_TEMPFAIL

  // Until the command has ended, or the name is lost: the outcome then. Nothing: the command has been ended, to be started
  // anew.
  std::optional<CommandResult> watch() {
    while (true) {
      if (const auto code = job_.wait(kInterval)) return CommandResult{.code = *code, .out = {}, .err = {}};
      if (const auto lost = look(); !lost.empty()) {
        job_.end();
        return CommandResult{.code = kLost, .out = {}, .err = lost + '\n'};
      }
      const auto now = Clock::now();
      const bool is_due = changed_at_ && (now - *changed_at_ >= settle_ || now - first_changed_at_ >= kMostSettles * settle_);
      if (!is_due || !tell()) continue;
      job_.end();
      if (job_.runs()) return CommandResult{.code = kLost, .out = {}, .err = "the command does not end\n"};
      return job_.asked() != 0 ? std::optional(endedBySignal()) : std::nullopt;
    }
  }

  // Asks the server. The reason, if the name is lost; else empty. A server that has just started has yet to take the name
  // back; so has one that is silent. The name is this node's meanwhile, until its lease ends.
  std::string look() {
    const std::string name(withoutDot(textAt(own_, "name").value_or("")));
    const bool is_over = valid_until_ && Clock::now() >= *valid_until_;
    const auto said = readClusterStatus(call_.node, textAt(own_, "pattern"), kStatusPatience);
    const auto now = said ? textAt(*said, "name") : std::nullopt;
    if (!now) {
      if (said && flagAt(*said, "had_name")) return fmt::format("{} is lost", name);
      return is_over ? fmt::format("{} is lost: the server did not keep it until its lease ended", name) : "";
    }
    if (withoutDot(*now) != name) return fmt::format("{} is lost: this node is {} now", name, withoutDot(*now));
    if (numberAt(*said, "token") != numberAt(own_, "token")) return fmt::format("{} was lost in between", name);
    noteOwned(*said);
    const auto serial = numberAt(*said, "serial");
    if (serial != serial_) noteChange();
    serial_ = serial;
    return "";
  }

  // Whether the command is to be started anew.
  bool tell() {
    changed_at_.reset();
    const std::string members = readMembersText();
    if (members.empty()) noteChange();  // etcd does not answer: later
    if (members.empty() || members == members_) return false;
    members_ = members;
    if (reaction_.kind == Reaction::Kind::kSignal) job_.signal(reaction_.signal);
    return reaction_.kind == Reaction::Kind::kRestart;
  }

  void noteChange() {
    const auto now = Clock::now();
    if (!changed_at_) first_changed_at_ = now;
    changed_at_ = now;
  }

  void noteOwned(const json& cluster) {
    if (!serial_) serial_ = numberAt(cluster, "serial");
    const auto left = numberAt(cluster, "lease_left_seconds");
    if (left) valid_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*left));
  }

  // Who they are, and where; empty: it is not known now.
  std::string readMembersText() {
    const auto cluster = readCluster(call_.node, givenPattern(call_.arguments), kMembersPatience);
    if (!cluster) return {};
    std::string text;
    for (const HeldSlot& slot : cluster->usable())
      text += fmt::format("{} {} {};", slot.name, slot.node.value_or(""), slot.addressText());
    return text.empty() ? ";" : text;
  }

  // The name, and as many members as are wanted. Signals of this process are heard meanwhile.
  tl::expected<json, CommandResult> awaitNext() {
    while (true) {
      auto found = awaitName(call_, Deadline::once());
      if (found) {
        if (numberAt(*found, "token") == numberAt(own_, "token")) return std::move(*found);
        return tl::unexpected(CommandResult{.code = kLost, .out = {}, .err = "the name is lost\n"});
      }
      if (!found.error().may_pass) return tl::unexpected(outcomeOf(found.error()));
      if (const auto lost = look(); !lost.empty())
        return tl::unexpected(CommandResult{.code = kLost, .out = {}, .err = lost + '\n'});
      job_.wait(kInterval);
      if (job_.asked() != 0) return tl::unexpected(endedBySignal());
    }
  }

  CommandResult endedBySignal() const { return {.code = 128 + job_.asked(), .out = {}, .err = {}}; }

  using Clock = std::chrono::steady_clock;

  const Call& call_;
  const Reaction reaction_;
  const std::chrono::nanoseconds settle_;
  Job job_;
  json own_;
  std::string members_;  // that the command knows of
  std::optional<double> serial_;
  std::optional<Clock::time_point> changed_at_;  // the last change of which it knows nothing
  Clock::time_point first_changed_at_;           // the first one, if there is any
  std::optional<Clock::time_point> valid_until_;  // of the lease
};

}  // namespace

CommandResult execute(const Call& call) {
  std::vector<std::string> words = call.arguments.words();
  if (words.front().empty()) return {.code = 127, .out = {}, .err = "the name of the command is empty\n"};
  if (call.arguments.has("barrier") && call.arguments.has("members"))
    return {.code = kFailed, .out = {}, .err = "--barrier and --members are one: give only one of them\n"};
  const auto reaction = reactionOf(call.arguments);
  if (!reaction) return {.code = kFailed, .out = {}, .err = reaction.error().message + '\n'};
  auto cluster = awaitName(call, Deadline(call.arguments.duration("timeout")));
  if (!cluster && cluster.error().may_pass) cluster.error().code = kNo;
  if (!cluster) return outcomeOf(cluster.error());
  addToEnvironment(*cluster);
  if (*reaction) return Supervisor(call, **reaction).run(*cluster);
  const std::vector<char*> argv = argumentsOf(words);
  ::execvp(argv.front(), argv.data());
  return refusedBySystem(words.front(), errno);
}

}  // namespace idetcd::cli
