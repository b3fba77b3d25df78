#include "cli/command.h"
#include "cli/text.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kWords{"attach", "detach", "status"};

std::string text(const json& object, std::string_view key) { return escaped(textAt(object, key).value_or("-")); }

std::string interfaceText(const json& interface) {
  if (!flagAt(interface, "attached"))
    return flagAt(interface, "wanted") ? "NOT ATTACHED" : "pinned, its interface is gone";
  return fmt::format("attached, {}, program {}{}", text(interface, "mode"), wholeAt(interface, "program"),
                     flagAt(interface, "wanted") ? "" : ", not in the Corefile");
}

std::string zoneText(const json& zone) {
  const double left = numberAt(zone, "believed_seconds").value_or(0);
  return fmt::format("{} names, {} addresses, {}, {}", wholeAt(zone, "names"), wholeAt(zone, "addresses"),
                     flagAt(zone, "whole") ? "whole" : "not whole",
                     left > 0 ? fmt::format("believed for {}", humanSeconds(left)) : "NOT BELIEVED");
}

void addCounts(const json& said, std::vector<Row>* rows) {
  for (const json& answered : arrayAt(said, "answered")) {
    rows->push_back(
        {fmt::format("answered {} {}", text(answered, "type"), text(answered, "rcode")), wholeAt(answered, "count")});
  }
  for (const json& passed : arrayAt(said, "passed"))
    rows->push_back({"passed " + text(passed, "reason"), wholeAt(passed, "count")});
}

std::string attachText(const json& said) {
  const std::vector<std::string> interfaces = textsAt(said, "interfaces");
  return fmt::format("{} is pinned, for {} names, and attached to {}{}\n", text(said, "pin"), wholeAt(said, "max_names"),
                     escaped(fmt::format("{}", fmt::join(interfaces, " "))),
                     flagAt(said, "kept_maps") ? ": what it knew is kept" : ": it knows nothing yet");
}

std::string detachText(const json& said) {
  if (!flagAt(said, "detached")) return fmt::format("nothing is pinned in {}\n", text(said, "pin"));
  return fmt::format("{} is gone: the sockets answer alone\n", text(said, "pin"));
}

}  // namespace

std::string xdpText(const json& said) {
  if (!flagAt(said, "pinned")) return fmt::format("nothing is pinned in {}\n", text(said, "pin"));
  std::vector<Row> rows{{"pin", text(said, "pin")}};
  for (const json& interface : arrayAt(said, "interfaces"))
    rows.push_back({"interface " + text(interface, "name"), interfaceText(interface)});
  rows.push_back({"names", fmt::format("{} of {}", wholeAt(said, "names"), wholeAt(said, "max_names"))});
  rows.push_back({"addresses", fmt::format("{} of {}", wholeAt(said, "addresses"), wholeAt(said, "max_names"))});
  rows.push_back({"listeners", wholeAt(said, "listeners")});
  for (const json& zone : arrayAt(said, "zones"))
    rows.push_back(
        {"zone " + escaped(withoutDot(textAt(zone, "name").value_or("of another Corefile"))), zoneText(zone)});
  addCounts(said, &rows);
  return table(rows);
}

CommandResult xdp(const Call& call) {
  const std::string& what = call.arguments.words().front();
  if (std::find(kWords.begin(), kWords.end(), what) == kWords.end())
    return {.code = kFailed, .out = {}, .err = "the words are `attach`, `detach` and `status`\n"};
  if (call.arguments.has("user") && what != "attach")
    return {.code = kFailed, .out = {}, .err = "--user is for `attach`\n"};
  const auto done = call.corefile({.corefile = call.arguments.text("conf").value_or(""),
                                   .directive = "xdp",
                                   .what = what,
                                   .user = call.arguments.text("user").value_or("")});
  if (!done) return {.code = kFailed, .out = {}, .err = done.error().message + '\n'};
  const json said = parseJson(*done);
  CommandResult outcome;
  if (what == "status" && !flagAt(said, "attached")) outcome.code = kNo;
  if (call.wantsJson()) {
    outcome.out = toLine(said);
  } else {
    outcome.out = what == "status" ? xdpText(said) : what == "attach" ? attachText(said) : detachText(said);
  }
  return outcome;
}

}  // namespace idetcd::cli
