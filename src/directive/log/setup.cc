// The directive `log`: a line for each query.
#include "config/option_table.h"
#include "directive/log/query_log.h"
#include "resolve/directive.h"

namespace idetcd::directive {

namespace {

struct LogClasses {
  bool success = true;
  bool denial = true;
  bool error = true;
};

struct LogLines {
  std::vector<dns::Name> zones;
  std::string format{LogFormat::kCommon};
  std::optional<LogClasses> classes;  // nothing: all
};

// With one argument it is a name; with more, the last is a format if it has a brace.
Result<void> readNames(config::DirectiveCursor& cursor, LogLines& lines) {
  std::vector<std::string> names = cursor.remainingArgs();
  if (!names.empty() && names.back().find('{') != std::string::npos) {
    lines.format = names.back();
    names.pop_back();
  }
  auto zones = config::parseZones(cursor, names);
  if (!zones) return tl::unexpected(zones.error());
  if (zones->empty()) zones->emplace_back();
  lines.zones = std::move(*zones);
  return {};
}

// Repeated lines add up.
Result<void> readClass(config::DirectiveCursor& cursor, LogLines& lines) {
  const auto names = cursor.args(1);
  if (!names) return tl::unexpected(names.error());
  LogClasses wanted = lines.classes.value_or(LogClasses{false, false, false});
  for (const std::string& name : *names) {
    if (name != "success" && name != "denial" && name != "error" && name != "all") {
      return cursor.error(fmt::format("invalid Class: {}", name));
    }
    wanted.success |= name == "success" || name == "all";
    wanted.denial |= name == "denial" || name == "all";
    wanted.error |= name == "error" || name == "all";
  }
  lines.classes = wanted;
  return {};
}

class LogDirective final : public resolve::Configured<std::vector<QueryLog::Rule>> {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    static const config::Options<LogLines> kOptions{readNames,
                                                    {{"class", "class success|denial|error|all...", readClass}}};
    LogLines lines;
    if (auto read = kOptions.read(cursor, lines); !read) return read;
    const LogFormat format = LogFormat::parse(lines.format);
    const LogClasses classes = lines.classes.value_or(LogClasses{});
    for (const dns::Name& zone : lines.zones) {
      settings_.push_back({.zone = zone,
                           .format = format,
                           .success = classes.success,
                           .denial = classes.denial,
                           .error = classes.error});
    }
    return {};
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    log_ = std::make_shared<const QueryLog>(settings_, process.log);
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext&) override {
    chain.parts.log = log_;
    return {};
  }

 private:
  std::shared_ptr<const QueryLog> log_;
};

}  // namespace

extern const resolve::DirectiveType kLogDirective{
    .name = "log",
    .syntax = "log [NAMES...] [FORMAT] [{ class success|denial|error|all... }]",
    .make = resolve::makeDirective<LogDirective>};

}  // namespace idetcd::directive
