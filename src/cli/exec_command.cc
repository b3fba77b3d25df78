#include <cstdlib>
#include <unistd.h>

#include "cli/command.h"
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
          {"IDETCD_PATTERN", textAt(cluster, "pattern").value_or("")}};
}

// The part of the status of the cluster in which this node has a name.
Reply<json> ownCluster(const LocalNode& node, const std::optional<std::string>& pattern, const Deadline& deadline) {
  const auto said = node.get("/v1/status", deadline.patience());
  if (!said) return tl::unexpected(said.error());
  std::vector<json> found;
  for (const json& cluster : arrayAt(*said, "clusters")) {
    if (!pattern || textAt(cluster, "pattern") == *pattern) found.push_back(cluster);
  }
  if (found.empty() && pattern) return tl::unexpected(unknownPattern(*pattern, *said));
  if (found.empty()) return failed(std::string(kNoCluster));
  if (found.size() > 1)
    return failed(fmt::format("there are several clusters: choose one with --pattern: {}", patternsOf(*said)));
  if (!textAt(found.front(), "name")) return notYet("this node has no name");
  return std::move(found.front());
}

Reply<json> awaitName(const Call& call) {
  const Deadline deadline(call.arguments.duration("timeout"));
  const auto pattern = givenPattern(call.arguments);
  const auto members = call.arguments.number("members");
  auto found = keepTrying<json>(deadline, [&]() -> Reply<json> {
    auto own = ownCluster(call.node, pattern, deadline);
    if (!own || !members) return own;
    const auto cluster = readCluster(call.node, textAt(*own, "pattern"), deadline.patience());
    if (!cluster) return tl::unexpected(cluster.error());
    const auto servers = serversOf(call.node, *cluster);
    if (!servers) return tl::unexpected(servers.error());
    const auto there = atLeastResolved(*cluster, *members, *servers, deadline);
    if (!there) return tl::unexpected(there.error());
    return own;
  });
  if (!found && found.error().may_pass) found.error().code = kNo;
  return found;
}

}  // namespace

CommandResult execute(const Call& call) {
  std::vector<std::string> words = call.arguments.words();
  if (words.front().empty()) return {.code = 127, .out = {}, .err = "the name of the command is empty\n"};
  const auto cluster = awaitName(call);
  if (!cluster) return outcomeOf(cluster.error());
  for (const auto& [name, value] : variablesOf(*cluster))
    ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  const int error = errno;
  return {.code = error == ENOENT ? 127 : 126,
          .out = {},
          .err = fmt::format("{}: {}\n", escaped(words.front()), std::strerror(error))};
}

}  // namespace idetcd::cli
