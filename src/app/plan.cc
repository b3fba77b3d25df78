#include "app/plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "base/ip_address.h"
#include "config/directive_cursor.h"
#include "config/duration.h"
#include "config/environment.h"
#include "etcd/client.h"

namespace idetcd::app {

namespace {

using config::DirectiveCursor;
using Strings = std::vector<std::string>;

std::optional<int64_t> parseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Where a duration counts seconds: DNS TTLs and etcd leases know nothing finer.
Result<int64_t> parseSeconds(DirectiveCursor& cursor, int64_t min, int64_t max) {
  const std::string option = cursor.value();
  const auto argument = cursor.oneArg();
  if (!argument) return tl::unexpected(argument.error());
  const auto duration = config::parseDuration(*argument);
  if (!duration) return cursor.error(duration.error().message);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*duration);
  if (seconds != *duration || seconds.count() < min || seconds.count() > max) {
    return cursor.error(fmt::format("{} must be whole seconds from {}s to {}s: '{}'", option, min, max, *argument));
  }
  return seconds.count();
}

// Zones as arguments: names, or networks that stand for their reverse zones.
Result<std::vector<dns::Name>> parseZones(const DirectiveCursor& cursor, const Strings& arguments) {
  std::vector<dns::Name> zones;
  for (const std::string& argument : arguments) {
    const auto keys = config::parseServerKey(argument, 53);
    if (!keys) return cursor.error(keys.error().message);
    for (const config::ServerKey& key : *keys) zones.push_back(key.zone);
  }
  return zones;
}

// --- idetcd ---

class ClusterParser {
 public:
  explicit ClusterParser(const config::Directive& directive) : directive_(directive), cursor_(directive) {}

  Result<ClusterPlan> parse() {
    if (cursor_.nextArg()) return cursor_.argError();
    while (cursor_.nextBlock()) {
      if (auto read = readOption(); !read) return tl::unexpected(read.error());
    }
    if (auto finished = cursor_.finish(); !finished) return tl::unexpected(finished.error());
    return check();
  }

 private:
  Result<void> readOption() {
    using Reader = Result<void> (ClusterParser::*)();
    static constexpr std::array<std::pair<std::string_view, Reader>, 9> kOptions{{
        {"endpoint", &ClusterParser::readEndpoint},
        {"limit", &ClusterParser::readLimit},
        {"pattern", &ClusterParser::readPattern},
        {"ttl", &ClusterParser::readTtl},
        {"lease", &ClusterParser::readLease},
        {"address", &ClusterParser::readAddress},
        {"interface", &ClusterParser::readInterface},
        {"fallthrough", &ClusterParser::readFallthrough},
        {"observe", &ClusterParser::readObserve},
    }};
    const auto option =
        std::find_if(kOptions.begin(), kOptions.end(), [this](const auto& o) { return o.first == cursor_.value(); });
    if (option == kOptions.end()) return cursor_.error(fmt::format("unknown property '{}'", cursor_.value()));
    return (this->*option->second)();
  }

  Result<void> readEndpoint() {
    const auto endpoints = cursor_.args(1);
    if (!endpoints) return tl::unexpected(endpoints.error());
    for (const std::string& endpoint : *endpoints) {
      if (const auto valid = etcd::Client::validateEndpoint(endpoint); !valid)
        return cursor_.error(valid.error().message);
    }
    plan_.endpoints = *endpoints;
    return {};
  }

  Result<void> readLimit() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto limit = parseInteger(*argument);
    if (!limit || *limit < 1 || *limit > std::numeric_limits<int32_t>::max()) {
      return cursor_.error(
          fmt::format("limit must be a number from 1 to {}: '{}'", std::numeric_limits<int32_t>::max(), *argument));
    }
    plan_.limit = *limit;
    return {};
  }

  Result<void> readPattern() {
    pattern_ = cursor_.remainingText();
    if (pattern_.empty()) return cursor_.argError();
    pattern_line_ = cursor_.line();
    return {};
  }

  Result<void> readTtl() {
    const auto seconds = parseSeconds(cursor_, 0, std::numeric_limits<int32_t>::max());  // RFC 2181 §8
    if (!seconds) return tl::unexpected(seconds.error());
    plan_.ttl_seconds = static_cast<uint32_t>(*seconds);
    return {};
  }

  Result<void> readLease() {
    constexpr int64_t kLongest = 24 * 3600;
    const auto seconds = parseSeconds(cursor_, 1, kLongest);
    if (!seconds) return tl::unexpected(seconds.error());
    plan_.lease = std::chrono::seconds(*seconds);
    return {};
  }

  Result<void> readAddress() {
    const auto arguments = cursor_.args(1);
    if (!arguments) return tl::unexpected(arguments.error());
    for (const std::string& argument : *arguments) {
      const auto address = IpAddress::parse(argument);
      if (!address) return cursor_.error(fmt::format("not an IP address: '{}'", argument));
      plan_.address.addresses.push_back(*address);
    }
    return {};
  }

  Result<void> readInterface() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    plan_.address.interface_name = *argument;
    return {};
  }

  Result<void> readFallthrough() {
    auto zones = parseZones(cursor_, cursor_.remainingArgs());
    if (!zones) return tl::unexpected(zones.error());
    if (zones->empty()) zones->emplace_back();  // every name
    plan_.fallthrough = std::move(*zones);
    return {};
  }

  Result<void> readObserve() {
    if (cursor_.nextArg()) return cursor_.argError();
    plan_.observe = true;
    return {};
  }

  Result<ClusterPlan> check() {
    if (pattern_.empty()) return cursor_.error("idetcd needs a pattern, like worker{{.ID}}.tf.local.");
    auto pattern = cluster::NamePattern::parse(pattern_, plan_.limit);
    if (!pattern) {
      return config::errorAt(directive_.file, pattern_line_,
                             fmt::format("bad pattern '{}': {}", pattern_, pattern.error().message));
    }
    plan_.pattern = std::move(*pattern);
    // What can be wrong with the addresses that the file names can be told without looking at the machine.
    if (!plan_.address.addresses.empty()) {
      const auto addresses = cluster::selectNodeAddresses(plan_.address, {});
      if (!addresses) return cursor_.error(addresses.error().message);
    }
    return std::move(plan_);
  }

  const config::Directive& directive_;
  DirectiveCursor cursor_;
  ClusterPlan plan_;
  std::string pattern_;
  int pattern_line_ = 0;
};

// --- bind ---

Result<void> readBind(const config::Directive& directive, BindPlan& plan) {
  DirectiveCursor cursor(directive);
  const auto listen = cursor.args(1);
  if (!listen) return tl::unexpected(listen.error());
  plan.listen.insert(plan.listen.end(), listen->begin(), listen->end());
  while (cursor.nextBlock()) {
    if (cursor.value() != "except") return cursor.error(fmt::format("unknown property '{}'", cursor.value()));
    const auto except = cursor.args(1);
    if (!except) return tl::unexpected(except.error());
    plan.except.insert(plan.except.end(), except->begin(), except->end());
  }
  return cursor.finish();
}

// --- workers ---

Result<void> readWorkers(const config::Directive& directive, size_t& workers) {
  constexpr int64_t kMost = 256;
  DirectiveCursor cursor(directive);
  const auto argument = cursor.oneArg();
  if (!argument) return tl::unexpected(argument.error());
  const auto number = parseInteger(*argument);
  if (!number || *number < 1 || *number > kMost) {
    return cursor.error(fmt::format("workers must be a number from 1 to {}: '{}'", kMost, *argument));
  }
  workers = static_cast<size_t>(*number);
  return cursor.finish();
}

// --- log ---

struct LogClasses {
  bool success = true;
  bool denial = true;
  bool error = true;
};

Result<LogClasses> readLogClasses(DirectiveCursor& cursor) {
  LogClasses classes{false, false, false};
  const auto names = cursor.args(1);
  if (!names) return tl::unexpected(names.error());
  for (const std::string& name : *names) {
    if (name != "success" && name != "denial" && name != "error" && name != "all") {
      return cursor.error(fmt::format("invalid Class: {}", name));
    }
    classes.success |= name == "success" || name == "all";
    classes.denial |= name == "denial" || name == "all";
    classes.error |= name == "error" || name == "all";
  }
  return classes;
}

// `log [NAMES…] [FORMAT]`: with one argument it is a name; with more, the last is a format if it has a brace.
Result<void> readLog(const config::Directive& directive, std::vector<resolve::QueryLog::Rule>& rules) {
  DirectiveCursor cursor(directive);
  Strings names = cursor.remainingArgs();
  std::string format_text(resolve::LogFormat::kCommon);
  if (!names.empty() && names.back().find('{') != std::string::npos) {
    format_text = names.back();
    names.pop_back();
  }
  const auto format = resolve::LogFormat::parse(format_text);
  if (!format) return cursor.error(format.error().message);
  auto zones = parseZones(cursor, names);
  if (!zones) return tl::unexpected(zones.error());
  if (zones->empty()) zones->emplace_back();
  LogClasses classes;
  while (cursor.nextBlock()) {
    if (cursor.value() != "class") return cursor.error(fmt::format("unknown property '{}'", cursor.value()));
    const auto read = readLogClasses(cursor);
    if (!read) return tl::unexpected(read.error());
    classes = *read;
  }
  if (auto finished = cursor.finish(); !finished) return finished;
  for (const dns::Name& zone : *zones) {
    rules.push_back({.zone = zone,
                     .format = *format,
                     .success = classes.success,
                     .denial = classes.denial,
                     .error = classes.error});
  }
  return {};
}

// --- errors ---

Result<void> readErrors(const config::Directive& directive, BlockPlan& plan) {
  DirectiveCursor cursor(directive);
  plan.errors = true;
  if (cursor.nextArg()) return cursor.argError();
  while (cursor.nextBlock()) {
    if (cursor.value() != "consolidate") return cursor.error(fmt::format("unknown property '{}'", cursor.value()));
    const auto arguments = cursor.args(2, 2);
    if (!arguments) return tl::unexpected(arguments.error());
    const auto period = config::parseDuration((*arguments)[0]);
    if (!period) return cursor.error(period.error().message);
    if (period->count() <= 0) return cursor.error(fmt::format("invalid duration: '{}'", (*arguments)[0]));
    plan.consolidate.push_back({.period = *period, .pattern = (*arguments)[1]});
  }
  // Made once here, to refuse a bad pattern with its line.
  if (const auto made = resolve::ErrorLog::make(plan.consolidate, {}); !made) return cursor.error(made.error().message);
  return cursor.finish();
}

// --- whoami ---

Result<void> readWhoami(const config::Directive& directive, bool& whoami) {
  DirectiveCursor cursor(directive);
  whoami = true;
  if (cursor.nextArg()) return cursor.argError();
  return cursor.finish();
}

Result<void> readDirective(const config::Directive& directive, BlockPlan& plan) {
  if (directive.name == "bind") return readBind(directive, plan.bind);
  if (directive.name == "errors") return readErrors(directive, plan);
  if (directive.name == "log") return readLog(directive, plan.log);
  if (directive.name == "workers") return readWorkers(directive, plan.workers);
  if (directive.name == "whoami") return readWhoami(directive, plan.whoami);
  if (plan.cluster) return DirectiveCursor(directive).error("idetcd can be used once in a server block");
  auto cluster = ClusterParser(directive).parse();
  if (!cluster) return tl::unexpected(cluster.error());
  plan.cluster = std::move(*cluster);
  return {};
}

}  // namespace

const std::vector<std::string>& directiveNames() {
  static const std::vector<std::string> kNames{"bind", "workers", "errors", "log", "idetcd", "whoami"};
  return kNames;
}

Result<Plan> makePlan(std::string_view name, std::string_view text, uint16_t default_port) {
  const config::ParseOptions options{
      .known_directives = directiveNames(), .default_port = default_port, .listen_directive = "bind"};
  const config::SystemEnvironment environment;
  const auto corefile = config::parseCorefile(name, text, options, environment);
  if (!corefile) return tl::unexpected(corefile.error());
  if (corefile->blocks.empty()) return config::errorAt(name, 1, "no server block");
  Plan plan;
  plan.warnings = corefile->warnings;
  for (const config::ServerBlock& block : corefile->blocks) {
    BlockPlan block_plan;
    block_plan.keys = block.keys;
    for (const config::Directive& directive : block.directives) {
      if (auto read = readDirective(directive, block_plan); !read) return tl::unexpected(read.error());
    }
    plan.blocks.push_back(std::move(block_plan));
  }
  return plan;
}

}  // namespace idetcd::app
