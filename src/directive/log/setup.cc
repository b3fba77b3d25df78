#include "directive/log/setup.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "config/arguments.h"
#include "config/option_table.h"

namespace idetcd::directive {

namespace {

struct LogClasses {
  bool success = true;
  bool denial = true;
  bool error = true;
};

struct BlockReader {
  config::DirectiveCursor& cursor;
  std::optional<LogClasses> classes{};  // nothing: all

  // Repeated lines add up.
  Result<void> readClass() {
    const auto names = cursor.args(1);
    if (!names) return tl::unexpected(names.error());
    LogClasses wanted = classes.value_or(LogClasses{false, false, false});
    for (const std::string& name : *names) {
      if (name != "success" && name != "denial" && name != "error" && name != "all") {
        return cursor.error(fmt::format("invalid Class: {}", name));
      }
      wanted.success |= name == "success" || name == "all";
      wanted.denial |= name == "denial" || name == "all";
      wanted.error |= name == "error" || name == "all";
    }
    classes = wanted;
    return {};
  }
};

}  // namespace

// With one argument it is a name; with more, the last is a format if it has a brace.
Result<void> LogDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  std::vector<std::string> names = cursor.remainingArgs();
  std::string format_text(LogFormat::kCommon);
  if (!names.empty() && names.back().find('{') != std::string::npos) {
    format_text = names.back();
    names.pop_back();
  }
  auto zones = config::parseZones(cursor, names);
  const auto head = zones ? Result<void>() : tl::unexpected(zones.error());
  if (zones && zones->empty()) zones->emplace_back();
  static constexpr config::OptionTable<BlockReader, 1> kOptions{{
      {"class", "class success|denial|error|all...", &BlockReader::readClass},
  }};
  BlockReader reader{cursor};
  if (auto read = config::readBlock(cursor, reader, kOptions, nullptr, head); !read) return read;
  const LogFormat format = LogFormat::parse(format_text);
  const LogClasses classes = reader.classes.value_or(LogClasses{});
  for (const dns::Name& zone : *zones) {
    rules_.push_back(
        {.zone = zone, .format = format, .success = classes.success, .denial = classes.denial, .error = classes.error});
  }
  return {};
}

Result<void> LogDirective::prepare(resolve::Process& process, const resolve::Block&) {
  log_ = std::make_shared<const QueryLog>(rules_, process.log);
  return {};
}

Result<void> LogDirective::addTo(resolve::Chain& chain, const resolve::LoopContext&) {
  chain.parts.log = log_;
  return {};
}

const resolve::DirectiveType kLogDirective{.name = "log",
                                           .syntax = "log [NAMES...] [FORMAT] [{ class success|denial|error|all... }]",
                                           .make = resolve::makeDirective<LogDirective>};

}  // namespace idetcd::directive
