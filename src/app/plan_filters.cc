// The directives `hosts` and `acl`.
#include <array>
#include <chrono>

#include <fmt/format.h>

#include "app/plan_internal.h"
#include "config/duration.h"

namespace idetcd::app {

namespace {

std::vector<dns::Name> zonesOf(const std::vector<config::ServerKey>& keys) {
  std::vector<dns::Name> zones;
  for (const config::ServerKey& key : keys) zones.push_back(key.zone);
  return zones;
}

// `hosts [FILE [ZONES…]] { … }`
class HostsParser {
 public:
  HostsParser(const config::Directive& directive, const std::vector<config::ServerKey>& keys) : cursor_(directive) {
    options_.zones = zonesOf(keys);
  }

  Result<resolve::HostsOptions> parse() {
    Strings arguments = cursor_.remainingArgs();
    if (!arguments.empty()) {
      options_.file = arguments.front();
      arguments.erase(arguments.begin());
    }
    auto zones = parseZones(cursor_, arguments);
    if (!zones) return tl::unexpected(zones.error());
    if (!zones->empty()) options_.zones = std::move(*zones);
    static constexpr OptionTable<HostsParser, 4> kOptions{{
        {"ttl", &HostsParser::readTtl},
        {"reload", &HostsParser::readReload},
        {"fallthrough", &HostsParser::readFallthrough},
        {"no_reverse", &HostsParser::readNoReverse},
    }};
    if (auto read = readBlock(cursor_, *this, kOptions, &HostsParser::readInline); !read) {
      return tl::unexpected(read.error());
    }
    return std::move(options_);
  }

 private:
  Result<void> readNoReverse() { return readFlag(cursor_, options_.no_reverse); }

  // `ADDRESS NAME…`
  Result<void> readInline() {
    std::string line = cursor_.value();
    if (!resolve::parseHostsAddress(line)) {
      static constexpr std::array<std::string_view, 5> kKnown{"ttl", "reload", "no_reverse", "fallthrough",
                                                              "ADDRESS NAME..."};
      return cursor_.error(fmt::format("unknown property '{}'{}", line, suggestion(line, kKnown)));
    }
    for (const std::string& name : cursor_.remainingArgs()) line += " " + name;
    options_.inline_lines.push_back(std::move(line));
    return {};
  }

  Result<void> readTtl() {
    constexpr int64_t kMax = 65535;
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto ttl = parseInteger(*argument);
    if (!ttl || *ttl <= 0 || *ttl > kMax) return cursor_.error(fmt::format("ttl provided is invalid: {}", *argument));
    options_.ttl_seconds = static_cast<uint32_t>(*ttl);
    return {};
  }

  Result<void> readReload() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto interval = config::parseDuration(*argument);
    if (!interval || interval->count() < 0) {
      return cursor_.error(fmt::format("invalid duration for reload '{}'", *argument));
    }
    options_.reload = std::chrono::ceil<std::chrono::milliseconds>(*interval);  // 0 alone means never
    return {};
  }

  Result<void> readFallthrough() {
    auto zones = parseZones(cursor_, cursor_.remainingArgs());
    if (!zones) return tl::unexpected(zones.error());
    if (zones->empty()) zones->emplace_back();
    options_.fallthrough = std::move(*zones);
    return {};
  }

  DirectiveCursor cursor_;
  resolve::HostsOptions options_;
};

}  // namespace

Result<resolve::HostsOptions> parseHosts(const config::Directive& directive,
                                         const std::vector<config::ServerKey>& keys) {
  return HostsParser(directive, keys).parse();
}

// `acl [ZONES…] { allow|block|filter|drop [type TYPE…] [net NETWORK…] }`
Result<resolve::Acl::RuleSet> parseAcl(const config::Directive& directive, const std::vector<config::ServerKey>& keys) {
  DirectiveCursor cursor(directive);
  resolve::Acl::RuleSet rules;
  auto zones = parseZones(cursor, cursor.remainingArgs());
  if (!zones) return tl::unexpected(zones.error());
  rules.zones = zones->empty() ? zonesOf(keys) : std::move(*zones);
  Problems problems;
  while (cursor.nextBlock()) {
    Strings words{cursor.value()};
    for (std::string& word : cursor.remainingArgs()) words.push_back(std::move(word));
    auto rule = resolve::parseAclRule(words);
    if (rule) {
      rules.rules.push_back(std::move(*rule));
    } else {
      problems.add(cursor.error(rule.error().message));
    }
  }
  if (auto finished = cursor.finish(); !finished) problems.add(finished.error().message);
  if (auto all = problems.result(); !all) return tl::unexpected(all.error());
  return rules;
}

}  // namespace idetcd::app
