#include <iostream>
#include <unistd.h>

#include "cli/command.h"
#include "cli/text.h"

namespace idetcd::cli {

namespace {

constexpr std::chrono::minutes kRecovery{2};  // etcd starts twice, and ends in order

using nlohmann::json;

std::string stateOf(const json& machine) {
  std::vector<std::string_view> words;
  if (flagAt(machine, "leader")) words.push_back("leader");
  if (flagAt(machine, "learner")) words.push_back("learner");
  if (!flagAt(machine, "healthy")) words.push_back("AWAY");
  if (flagAt(machine, "in_memory")) words.push_back("in memory");
  if (flagAt(machine, "own")) words.push_back("this node");
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string textOr(const json& object, std::string_view key) {
  const std::string text = textAt(object, key).value_or("");
  return text.empty() ? "-" : escaped(text);
}

std::string groupText(const json& group) {
  std::vector<Row> rows;
  const auto cluster = textAt(group, "cluster");
  rows.push_back({"cluster", cluster ? escaped(*cluster) : textOr(group, "waits_for")});
  if (cluster && numberAt(group, "number")) {
    rows.push_back({"founded by",
                    fmt::format("{}, this node is number {}", wholeAt(group, "founders"), wholeAt(group, "number"))});
  } else if (cluster) {
    rows.push_back({"founded by", fmt::format("{}, before this node came", wholeAt(group, "founders"))});
  }
  if (cluster) {
    rows.push_back({"this node", fmt::format("{}, {}", textOr(group, "role"),
                                             flagAt(group, "connected") ? "voters are reached" : "voters are AWAY")});
  }
  if (!flagAt(group, "listens"))
    rows.push_back({"port", fmt::format("{} CANNOT be listened on", wholeAt(group, "port"))});
  if (const auto problem = textAt(group, "problem"); cluster && problem && !problem->empty())
    rows.push_back({"PROBLEM", escaped(*problem)});
  if (const auto doing = textAt(group, "doing"); doing && !doing->empty()) rows.push_back({"doing", escaped(*doing)});
  std::string text = table(rows);
  std::vector<Row> voters{{"VOTER", "ADDRESS", "ETCD", "STATE"}};
  for (const json& one : arrayAt(group, "voters"))
    voters.push_back({textOr(one, "node"), textOr(one, "address"), textOr(one, "version"), stateOf(one)});
  if (voters.size() > 1) text += "\n" + table(voters);
  std::vector<Row> standbys{{"STANDBY", "ADDRESS"}};
  for (const json& one : arrayAt(group, "standbys")) standbys.push_back({textOr(one, "node"), textOr(one, "address")});
  if (standbys.size() > 1) text += "\n" + table(standbys);
  return text;
}

// Asked twice.
bool isSure(const json& group) {
  const auto ask = [](std::string_view question) {
    std::string line;
    if (print(STDERR_FILENO, question)) std::getline(std::cin, line);
    return line;
  };
  const std::string text =
      "The data of this voter becomes the cluster's, alone: what the others have and this one has not is lost, and "
      "none "
      "of them may come back with its data.\n";
  if (ask(fmt::format("{}\n{}Type recover to go on: ", groupText(group), text)) != "recover") return false;
  return ask("Type yes if the other voters are lost for ever: ") == "yes";
}

CommandResult recover(const Call& call, const json& groups) {
  const auto refuse = [](int code, std::string_view why) {
    return CommandResult{.code = code, .out = {}, .err = fmt::format("{}: nothing is recovered\n", why)};
  };
  const auto port = call.arguments.number("port");
  const json* chosen = nullptr;
  for (const json& group : groups) {
    if (port && numberAt(group, "port") != static_cast<double>(*port)) continue;
    if (chosen != nullptr) return refuse(kFailed, "there are several: --port says which");
    chosen = &group;
  }
  if (chosen == nullptr) return refuse(kFailed, "there is none of that port");
  const bool yes = call.arguments.has("yes");
  if (!yes && (::isatty(STDIN_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0))
    return refuse(kFailed, "this is no terminal to be asked at, so --yes is needed");
  if (!yes && !isSure(*chosen)) return refuse(kNo, "not confirmed");
  const auto done = call.node.post(fmt::format("/v1/peers/recover?port={}", wholeAt(*chosen, "port")), kRecovery);
  if (!done) return outcomeOf(done.error());
  if (call.wantsJson()) return {.code = kGood, .out = toLine(*done), .err = {}};
  return {.code = kGood,
          .out = fmt::format("recovered: this node's data is the cluster's; {}\n", textOr(*done, "warning")),
          .err = {}};
}

}  // namespace

std::string peersText(const nlohmann::json& said) {
  std::string text;
  for (const json& group : arrayAt(said, "peers")) text += (text.empty() ? "" : "\n") + groupText(group);
  return text;
}

CommandResult peers(const Call& call) {
  const auto& words = call.arguments.words();
  if (!words.empty() && words.front() != "recover")
    return {.code = kFailed, .out = {}, .err = "the only word is `recover`: peers [recover]\n"};
  const auto said = call.node.get("/v1/peers");
  if (!said) return outcomeOf(said.error());
  const json& groups = arrayAt(*said, "peers");
  if (groups.empty()) return {.code = kFailed, .out = {}, .err = "the server's Corefile has no `peers`\n"};
  if (!words.empty()) return recover(call, groups);
  const bool good = std::ranges::all_of(groups, [](const json& group) { return flagAt(group, "connected"); });
  return {.code = good ? kGood : kNo, .out = call.wantsJson() ? toLine(*said) : peersText(*said), .err = {}};
}

}  // namespace idetcd::cli
