#include <unistd.h>

#include "cli/command.h"
#include "cli/roster.h"
#include "cli/text.h"
#include "cli/top_screen.h"

namespace idetcd::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kRefresh = 1000ms;
constexpr auto kPatience = 10000ms;

std::string rcodesText(const json& said) {
  std::string text;
  const auto found = said.find("rcodes");
  if (found == said.end() || !found->is_object()) return text;
  for (const auto& [rcode, share] : found->items()) {
    if (share.is_number())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", escaped(rcode), humanShare(share.get<double>()));
  }
  return text;
}

Reply<json> read(const Call& call) {
  const auto seconds = call.arguments.number("seconds");
  auto said = call.node.get(
      target("/v1/top", "seconds", seconds ? std::optional(std::to_string(*seconds)) : std::nullopt), kPatience);
  if (!said) said.error().code = kFailed;
  return said;
}

CommandResult watch(const Call& call) {
  auto first = read(call);
  if (!first) return outcomeOf(first.error());  // before the terminal changes
  auto screen = TopScreen::open();
  if (!screen) return {.code = kFailed, .out = {}, .err = screen.error().message + '\n'};
  std::string text = topText(*first);
  while (true) {
    if (auto shown = (*screen)->show(text); !shown)
      return {.code = kFailed, .out = {}, .err = shown.error().message + '\n'};
    const auto event = (*screen)->wait(kRefresh);
    if (event == TopScreen::Event::kQuit) return {};
    if (event == TopScreen::Event::kResized) continue;
    const auto said = read(call);
    text = said ? topText(*said) : said.error().message + '\n';
  }
}

}  // namespace

std::string topText(const json& said) {
  const auto seconds = numberAt(said, "seconds");
  std::string text =
      fmt::format("{} queries/s, p50 {}, p99 {} (last {})\n", humanRate(numberAt(said, "rate").value_or(0)),
                  latencyAt(said, "p50_seconds"), latencyAt(said, "p99_seconds"), seconds ? humanSeconds(*seconds) : "-");
  if (const std::string rcodes = rcodesText(said); !rcodes.empty()) text += rcodes + '\n';
  std::vector<Row> rows{{"SHARE", "QUERIES/S", "TYPE", "NAME"}};
  for (const json& name : arrayAt(said, "names")) {
    rows.push_back({humanShare(numberAt(name, "share").value_or(0)), humanRate(numberAt(name, "rate").value_or(0)),
                    escaped(textAt(name, "type").value_or("-")), escaped(textAt(name, "name").value_or("-"))});
  }
  return text + '\n' + table(rows);
}

CommandResult top(const Call& call) {
  const bool is_live = ::isatty(STDOUT_FILENO) != 0 && ::isatty(STDIN_FILENO) != 0;
  if (is_live && !call.wantsJson() && !call.arguments.has("once")) return watch(call);
  const auto said = read(call);
  if (!said) return outcomeOf(said.error());
  return {.code = kGood, .out = call.wantsJson() ? toLine(*said) : topText(*said), .err = {}};
}

}  // namespace idetcd::cli
