#include "cli/command.h"
#include "cli/text.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;

std::string stateText(const json& finding) {
  const std::string state = textAt(finding, "state").value_or("?");
  return state == "warning" ? "WARNING" : state == "error" ? "ERROR" : escaped(state);
}

std::string counted(const json& said, std::string_view key, std::string_view one) {
  const double number = numberAt(said, key).value_or(0);
  return fmt::format("{:.0f} {}{}", number, one, number == 1 ? "" : "s");
}

}  // namespace

std::string doctorText(const json& said) {
  std::vector<Row> rows;
  for (const json& finding : arrayAt(said, "findings")) {
    rows.push_back({stateText(finding), escaped(textAt(finding, "check").value_or("?")),
                    escaped(textAt(finding, "finding").value_or("?"))});
    if (const auto fix = textAt(finding, "fix")) rows.push_back({"", "", "-> " + escaped(*fix)});
  }
  return fmt::format("{}{}, {}\n", table(rows), counted(said, "errors", "error"), counted(said, "warnings", "warning"));
}

CommandResult doctor(const Call& call) {
  const auto done = call.corefile({.corefile = call.arguments.text("conf").value_or(""),
                                   .directive = {},
                                   .socket = call.arguments.text("socket")});
  if (!done) return {.code = kFailed, .out = {}, .err = done.error().message + '\n'};
  const json said = parseJson(*done);
  CommandResult outcome{.code = kGood, .out = call.wantsJson() ? toLine(said) : doctorText(said), .err = {}};
  if (numberAt(said, "warnings").value_or(0) > 0) outcome.code = kNo;
  if (numberAt(said, "errors").value_or(0) > 0) outcome.code = kFailed;
  return outcome;
}

}  // namespace idetcd::cli
