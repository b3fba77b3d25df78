#include "app/plan.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <net/if.h>

#include <fmt/format.h>

#include "app/named_files.h"
#include "app/plan_internal.h"
#include "config/duration.h"
#include "config/environment.h"

namespace idetcd::app {

std::optional<int64_t> parseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
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

namespace {

// --- bind ---

// What the kernel takes for a name of an interface, whether there is one or not; but a mistyped address is none.
bool mayBeInterface(std::string_view text) {
  const auto is_foul = [](char c) { return c <= ' ' || c == '/' || c == ':' || c == 0x7f; };
  const auto is_numeric = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
  return !text.empty() && text.size() < IFNAMSIZ && std::none_of(text.begin(), text.end(), is_foul) &&
         !std::all_of(text.begin(), text.end(), is_numeric);
}

Result<void> readListenAddresses(DirectiveCursor& cursor, Strings& addresses) {
  const auto arguments = cursor.args(1);
  if (!arguments) return tl::unexpected(arguments.error());
  for (const std::string& argument : *arguments) {
    if (!IpAddress::parse(argument) && !mayBeInterface(argument)) {
      return cursor.error(fmt::format("not an IP address or the name of an interface: '{}'", argument));
    }
    addresses.push_back(argument);
  }
  return {};
}

Result<void> readBind(const config::Directive& directive, BindPlan& plan) {
  DirectiveCursor cursor(directive);
  if (auto read = readListenAddresses(cursor, plan.listen); !read) return read;
  while (cursor.nextBlock()) {
    if (cursor.value() != "except") return cursor.error(fmt::format("unknown property '{}'", cursor.value()));
    if (auto read = readListenAddresses(cursor, plan.except); !read) return read;
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
  const auto file = cursor.args(0, 1);
  if (!file) return tl::unexpected(file.error());
  if (!file->empty() && file->front() != "stdout") {
    return cursor.error(fmt::format("a log file other than stdout is not supported: '{}'", file->front()));
  }
  while (cursor.nextBlock()) {
    if (cursor.value() == "stacktrace") return cursor.error("stacktrace is not supported");
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

// --- loadbalance ---

Result<void> readLoadbalance(const config::Directive& directive, bool& loadbalance) {
  DirectiveCursor cursor(directive);
  const Strings policy = cursor.remainingArgs();
  if (!policy.empty() && policy.front() != "round_robin") {
    return cursor.error(fmt::format("loadbalance policy '{}' is not supported", policy.front()));
  }
  if (policy.size() > 1) return cursor.argError();
  loadbalance = true;
  return cursor.finish();
}

// --- any, loop, minimal, whoami ---

Result<void> readBare(const config::Directive& directive, bool& flag) {
  DirectiveCursor cursor(directive);
  if (auto read = readFlag(cursor, flag); !read) return read;
  return cursor.finish();
}

// --- nsid ---

Result<void> readNsid(const config::Directive& directive, std::optional<std::string>& nsid) {
  constexpr size_t kMaxData = 255;
  DirectiveCursor cursor(directive);
  std::string data;
  for (const std::string& word : cursor.remainingArgs()) data += data.empty() ? word : " " + word;
  if (data.size() > kMaxData) return cursor.error(fmt::format("nsid data of more than {} octets", kMaxData));
  nsid = std::move(data);
  return cursor.finish();
}

// --- bufsize ---

Result<void> readBufsize(const config::Directive& directive, size_t& bufsize) {
  DirectiveCursor cursor(directive);
  const auto arguments = cursor.args(0, 1);
  if (!arguments) return tl::unexpected(arguments.error());
  bufsize = dns::kDefaultUdpPayload;
  if (!arguments->empty()) {
    const auto size = parseInteger(arguments->front());
    if (!size || *size < 512 || *size > 4096) {
      return cursor.error(fmt::format("bufsize must be within 512 - 4096: {}", arguments->front()));
    }
    bufsize = static_cast<size_t>(*size);
  }
  return cursor.finish();
}

// A directive that may stand once in a block.
template <typename Options>
Result<void> readOnce(const config::Directive& directive, std::optional<Options>& options,
                      Result<Options> (*parse)(const config::Directive&)) {
  if (options) {
    return DirectiveCursor(directive).error(fmt::format("{} can be used once in a server block", directive.name));
  }
  auto parsed = parse(directive);
  if (!parsed) return tl::unexpected(parsed.error());
  options = std::move(*parsed);
  return {};
}

// One that may stand there several times.
template <typename Options>
Result<void> append(Result<Options> parsed, std::vector<Options>& options) {
  if (!parsed) return tl::unexpected(parsed.error());
  options.push_back(std::move(*parsed));
  return {};
}

Result<void> readHosts(const config::Directive& directive, BlockPlan& plan) {
  if (plan.hosts) return DirectiveCursor(directive).error("hosts can be used once in a server block");
  auto options = parseHosts(directive, plan.keys);
  if (!options) return tl::unexpected(options.error());
  plan.hosts = std::move(*options);
  return {};
}

using DirectiveReader = Result<void> (*)(const config::Directive&, BlockPlan&);

// In the order in which the handlers run.
const std::vector<std::pair<std::string, DirectiveReader>>& directives() {
  using D = const config::Directive&;
  using P = BlockPlan&;
  static const std::vector<std::pair<std::string, DirectiveReader>> kDirectives{
      {"nsid", [](D d, P plan) { return readNsid(d, plan.nsid); }},
      {"bind", [](D d, P plan) { return readBind(d, plan.bind); }},
      {"bufsize", [](D d, P plan) { return readBufsize(d, plan.bufsize); }},
      {"workers", [](D d, P plan) { return readWorkers(d, plan.workers); }},
      {"errors", [](D d, P plan) { return readErrors(d, plan); }},
      {"log", [](D d, P plan) { return readLog(d, plan.log); }},
      {"any", [](D d, P plan) { return readBare(d, plan.any); }},
      {"loadbalance", [](D d, P plan) { return readLoadbalance(d, plan.loadbalance); }},
      {"acl", [](D d, P plan) { return append(parseAcl(d, plan.keys), plan.acl); }},
      {"cache", [](D d, P plan) { return readOnce(d, plan.cache, parseCache); }},
      {"minimal", [](D d, P plan) { return readBare(d, plan.minimal); }},
      {"hosts", readHosts},
      {"idetcd", [](D d, P plan) { return readOnce(d, plan.cluster, parseCluster); }},
      {"loop", [](D d, P plan) { return readBare(d, plan.loop); }},
      {"forward", [](D d, P plan) { return append(parseForward(d), plan.forward); }},
      {"whoami", [](D d, P plan) { return readBare(d, plan.whoami); }},
  };
  return kDirectives;
}

// Directives of CoreDNS 1.14 that this server does not have.
const std::vector<std::string>& foreignDirectives() {
  static const std::vector<std::string> kForeign{
      "acme",      "auto",   "autopath",   "azure",        "cancel",     "chaos",  "clouddns", "debug",       "dns64",
      "dnssec",    "dnstap", "erratic",    "etcd",         "file",       "geoip",  "grpc",     "grpc_server", "header",
      "health",    "https",  "https3",     "k8s_external", "kubernetes", "local",  "metadata", "multisocket", "nomad",
      "on",        "pprof",  "prometheus", "quic",         "ready",      "reload", "rewrite",  "root",        "route53",
      "secondary", "sign",   "template",   "timeouts",     "tls",        "trace",  "transfer", "tsig",        "view",
  };
  return kForeign;
}

// What the clusters keep in one state directory is told apart by their patterns, if there are several. Blocks with one
// pattern share one cluster.
void tellClustersApart(Plan& plan) {
  std::vector<ClusterPlan*> clusters;
  for (BlockPlan& block : plan.blocks) {
    if (block.cluster) clusters.push_back(&*block.cluster);
  }
  for (ClusterPlan* cluster : clusters) {
    cluster->only = std::all_of(clusters.begin(), clusters.end(), [cluster](const ClusterPlan* other) {
      return other->pattern.text() == cluster->pattern.text();
    });
  }
}

Result<void> readDirective(const config::Directive& directive, BlockPlan& plan) {
  const auto& known = directives();
  const auto it = std::find_if(known.begin(), known.end(), [&](const auto& d) { return d.first == directive.name; });
  if (it != known.end()) {
    auto read = it->second(directive, plan);
    if (!read) return fail(withSyntax(read.error().message, syntaxOf(directive.name)));
    return read;
  }
  const std::vector<std::string>& foreign = foreignDirectives();
  std::string what = ": CoreDNS has it, it is not supported here";
  if (std::find(foreign.begin(), foreign.end(), directive.name) == foreign.end()) {
    const std::vector<std::string_view> names(directiveNames().begin(), directiveNames().end());
    what = suggestion(directive.name, names);
  }
  return config::errorAt(directive.file, directive.line, fmt::format("Unknown directive '{}'{}", directive.name, what));
}

}  // namespace

const std::vector<std::string>& directiveNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& directive : directives()) names.push_back(directive.first);
    return names;
  }();
  return kNames;
}

Result<Plan> makePlan(std::string_view name, std::string_view text, uint16_t default_port, NamedFiles files) {
  std::vector<Error> errors;
  // Any directive is known to the parser, so that it reads on after one that is not.
  const config::ParseOptions options{
      .known_directives = {}, .default_port = default_port, .listen_directive = "bind", .errors = &errors};
  const config::SystemEnvironment environment;
  const auto corefile = config::parseCorefile(name, text, options, environment);
  Problems problems;
  for (const Error& error : errors) problems.add(error.message);
  if (!corefile) problems.add(corefile.error().message);
  if (!corefile) return tl::unexpected(problems.result().error());
  if (corefile->blocks.empty() && problems.empty())
    return config::errorAt(name, 1, "no server block; write: . { ... }");
  Plan plan;
  plan.warnings = corefile->warnings;
  for (const config::ServerBlock& block : corefile->blocks) {
    BlockPlan block_plan;
    block_plan.keys = block.keys;
    for (const config::Directive& directive : block.directives) {
      if (auto read = readDirective(directive, block_plan); !read) problems.add(read.error().message);
      if (files == NamedFiles::kNotRead) continue;
      for (const Error& error : checkNamedFiles(directive)) problems.add(error.message);
    }
    plan.blocks.push_back(std::move(block_plan));
  }
  if (auto all = problems.result(); !all) return tl::unexpected(all.error());
  tellClustersApart(plan);
  return plan;
}

}  // namespace idetcd::app
