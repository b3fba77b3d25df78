#include <iostream>
#include <unistd.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/roster.h"
#include "cli/text.h"

namespace idetcd::cli {

namespace {

using nlohmann::json;

std::string drainText(const json& node) {
  const bool has_state = node.contains("state_written");  // which cannot be written
  const std::string_view later = "; `state` cannot be written: unless it can before, a restart undoes that";
  if (flagAt(node, "drained")) {
    const bool is_lost = textAt(node, "lasts") == "process";
    return fmt::format("drained{}: the name is kept, without addresses{}",
                       is_lost && !has_state ? " until this server ends (no `state` directory)" : "",
                       has_state ? later : "");
  }
  const auto sick = textAt(node, "sick");
  return fmt::format("no longer drained{}{}",
                     sick ? ", but sick: its addresses are not in DNS: " + escaped(*sick) : ": its addresses are in DNS",
                     has_state ? later : "");
}

CommandResult setDrained(const Call& call, std::string_view path) {
  const auto pattern = givenPattern(call.arguments);
  const auto said = explained(call.node, pattern, call.node.post(target(path, "pattern", pattern)));
  if (!said) return outcomeOf(said.error());
  if (call.wantsJson()) return {.code = kGood, .out = toLine(*said), .err = {}};
  CommandResult outcome;
  for (const json& node : arrayAt(*said, "nodes")) {
    outcome.out += fmt::format("{}: {}\n", escaped(withoutDot(textAt(node, "name").value_or("-"))), drainText(node));
  }
  return outcome;
}

using nlohmann::json;

// Without what a hand, or a copy from a table, leaves around it.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// As etcd has it.
std::string keyOf(std::string_view name) { return withDot(lowerCase(trimmed(name))); }

std::string described(const HeldSlot& slot) {
  std::vector<Row> rows{
      {"name", escaped(withoutDot(slot.name))},
      {"node", slot.node ? escaped(*slot.node) : "none: written by the Go plugin, or by hand"},
      {"addresses", slot.addresses.empty() ? "-" : escaped(fmt::format("{}", fmt::join(slot.addresses, " ")))},
      {"age", slot.age()},
      {"lease left", slot.permanent ? "none: it stays until somebody releases it" : slot.lease()}};
  if (!slot.state().empty()) rows.push_back({"state", slot.state()});
  return table(rows);
}

// Asks on the terminal, and reads a line from there. An error of the terminal is an empty answer.
std::string answerTo(std::string_view question) {
  std::string line;
  if (!print(STDERR_FILENO, question)) return line;
  std::getline(std::cin, line);
  return line;
}

// Asked twice: which name, and whether.
bool isConfirmed(const HeldSlot& slot) {
  const std::string text = fmt::format("{}; a node that is free may take it at once.\n",
                                       slot.reserved ? "This name no longer waits for its node"
                                                     : "Whoever holds this name loses it");
  const std::string typed = answerTo(fmt::format("{}\n{}Type the name to release it: ", described(slot), text));
  if (keyOf(typed) != slot.name) return false;
  return trimmed(answerTo("Type yes if you are sure: ")) == "yes";
}

CommandResult refuse(int code, std::string message) {
  return {.code = code, .out = {}, .err = std::move(message) + ": nothing is released\n"};
}

}  // namespace

CommandResult drain(const Call& call) { return setDrained(call, "/v1/drain"); }

CommandResult undrain(const Call& call) { return setDrained(call, "/v1/undrain"); }

CommandResult flushCache(const Call& call) {
  const auto& words = call.arguments.words();
  if (words.front() != "flush")
    return {.code = kFailed, .out = {}, .err = "the only word is `flush`: cache flush [NAME]\n"};
  std::optional<std::string> name;
  if (words.size() > 1) name = withDot(words[1]);
  const auto said = call.node.post(target("/v1/flush", "name", name));
  if (!said) return outcomeOf(said.error());
  if (call.wantsJson()) return {.code = kGood, .out = toLine(*said), .err = {}};
  const auto flushed = numberAt(*said, "flushed").value_or(0);
  return {
      .code = kGood, .out = fmt::format("{:.0f} {} flushed\n", flushed, flushed == 1 ? "entry" : "entries"), .err = {}};
}

CommandResult release(const Call& call) {
  const std::string name = keyOf(call.arguments.words().front());
  const auto yes = call.arguments.text("yes");
  if (yes && keyOf(*yes) != name) return refuse(kFailed, "--yes names another one");
  if (!yes && (::isatty(STDIN_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0))
    return refuse(kFailed,
                  fmt::format("this is no terminal to be asked at, so --yes {} is needed", escaped(withoutDot(name))));
  const auto said = call.node.get(target("/v1/slot", "name", name));
  if (!said) return outcomeOf(said.error());
  HeldSlot slot = HeldSlot::of(*said);
  if (slot.name.empty()) slot.name = name;
  const auto revision = said->find("revision");
  if (revision == said->end() || !revision->is_number_integer())
    return refuse(kFailed, "the server does not say its revision");
  if (!yes && !isConfirmed(slot)) return refuse(kNo, "not confirmed");
  const auto done = call.node.post(
      fmt::format("/v1/release?name={}&revision={}", percentEncoded(slot.name), revision->get<int64_t>()));
  if (!done) return outcomeOf(done.error());
  if (call.wantsJson()) return {.code = kGood, .out = toLine(*done), .err = {}};
  return {.code = kGood, .out = fmt::format("{} is released\n", escaped(withoutDot(slot.name))), .err = {}};
}

}  // namespace idetcd::cli
