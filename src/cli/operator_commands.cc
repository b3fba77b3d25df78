#include "cli/commands.h"
#include "cli/roster.h"
#include "cli/text.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;

std::string_view drainText(const json& node) {
  if (!flagAt(node, "drained")) return "no longer drained: its addresses are in DNS";
  return textAt(node, "lasts") == "process"
             ? "drained until this server ends (no `state` directory): the name is kept, without addresses"
             : "drained: the name is kept, without addresses";
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

}  // namespace idetcd::cli
