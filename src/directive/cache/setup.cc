#include "directive/cache/setup.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "config/arguments.h"
#include "config/duration.h"
#include "config/option_table.h"
#include "node/state_directory.h"

namespace idetcd::directive {

namespace {

constexpr size_t kStaleMode = 1;  // of `serve_stale`, the argument that says how
constexpr std::chrono::minutes kMaxRecheck{5};
constexpr std::chrono::seconds kMaxStaleTtl = std::chrono::hours(24 * 7);  // RFC 8767 §4: the cap that it recommends

class CacheParser {
 public:
  explicit CacheParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  // `cache [TTL] [ZONES…] { … }`
  Result<resolver::CacheSettings> parse() {
    const auto head = readHead();
    static constexpr config::OptionTable<CacheParser, 10> kOptions{{
        {"success", "success CAPACITY [TTL] [MINTTL]", &CacheParser::readSuccess},
        {"denial", "denial CAPACITY [TTL] [MINTTL]", &CacheParser::readDenial},
        {"prefetch", "prefetch AMOUNT [DURATION] [PERCENTAGE%]", &CacheParser::readPrefetch},
        {"serve_stale", "serve_stale [DURATION] [immediate [TTL [RECHECK]] | verify [TIMEOUT [TTL [RECHECK]]]]",
         &CacheParser::readServeStale},
        {"servfail", "servfail DURATION, at most 5m", &CacheParser::readServfail},
        {"serve_stale_policy", "serve_stale_policy prefer_positive", &CacheParser::readServeStalePolicy},
        {"disable", "disable success|denial [ZONES...]", &CacheParser::readDisable},
        {"keepttl", "keepttl", &CacheParser::readKeepTtl},
        {"nxdomain_cut", "nxdomain_cut", &CacheParser::readNxdomainCut},
        {"persist", "persist [DIRECTORY]", &CacheParser::readPersist},
    }};
    const auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head);
    if (!read) return tl::unexpected(read.error());
    if (settings_.options.prefer_positive && !has_serve_stale_) {
      return tl::unexpected(cursor_.error("serve_stale_policy needs serve_stale").value());
    }
    return std::move(settings_);
  }

 private:
  Result<void> readHead() {
    std::vector<std::string> arguments = cursor_.remainingArgs();
    config::Problems problems;
    if (!arguments.empty()) {
      if (const auto ttl = parseNumber<int64_t>(arguments.front())) {
        if (auto set = setTtl(settings_.options.success, *ttl); !set) problems.add(set.error().message);
        settings_.options.denial.max_ttl_seconds = settings_.options.success.max_ttl_seconds;
        arguments.erase(arguments.begin());
      }
    }
    auto zones = config::parseZones(cursor_, arguments);
    if (!zones) problems.add(zones.error().message);
    if (zones && !zones->empty()) settings_.zones = std::move(*zones);
    return problems.result();
  }

  Result<void> readSuccess() { return readPool(settings_.options.success); }
  Result<void> readDenial() { return readPool(settings_.options.denial); }
  Result<void> readKeepTtl() { return config::readFlag(cursor_, settings_.options.keep_ttl); }
  Result<void> readNxdomainCut() { return config::readFlag(cursor_, settings_.options.nxdomain_cut); }

  // `persist [DIRECTORY]`
  Result<void> readPersist() {
    const auto arguments = cursor_.args(0, 1);
    if (!arguments) return tl::unexpected(arguments.error());
    settings_.directory = arguments->empty() ? node::stateDirectoryOfService() : arguments->front();
    if (settings_.directory.empty())
      return cursor_.error("persist needs a DIRECTORY where systemd has made none (StateDirectory=)");
    if (!settings_.directory.starts_with('/')) return cursor_.error("persist needs an absolute path");
    return {};
  }

  Result<void> setTtl(resolver::Cache::Pool& pool, int64_t ttl) {
    if (ttl <= 0 || ttl > std::numeric_limits<int32_t>::max()) {
      return cursor_.error(fmt::format("cache TTL can not be zero or negative: {}", ttl));
    }
    pool.max_ttl_seconds = static_cast<uint32_t>(ttl);
    pool.min_ttl_seconds = std::min(pool.min_ttl_seconds, pool.max_ttl_seconds);
    return {};
  }

  // `success CAPACITY [TTL] [MINTTL]`
  Result<void> readPool(resolver::Cache::Pool& pool) {
    const auto arguments = cursor_.args(1, 3);
    if (!arguments) return tl::unexpected(arguments.error());
    std::vector<int64_t> numbers;
    for (const std::string& argument : *arguments) {
      const auto number = parseNumber<int64_t>(argument);
      if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max()) {
        return cursor_.error(fmt::format("not a number: '{}'", argument));
      }
      numbers.push_back(*number);
    }
    pool.capacity = static_cast<size_t>(numbers[0]);
    if (numbers.size() > 1) {
      if (auto set = setTtl(pool, numbers[1]); !set) return set;
    }
    if (numbers.size() > 2) pool.min_ttl_seconds = static_cast<uint32_t>(numbers[2]);
    if (pool.min_ttl_seconds > pool.max_ttl_seconds) return cursor_.error("the least TTL is larger than the largest");
    return {};
  }

  // `prefetch AMOUNT [DURATION] [PERCENTAGE%]`
  Result<void> readPrefetch() {
    const auto arguments = cursor_.args(1, 3);
    if (!arguments) return tl::unexpected(arguments.error());
    resolver::Cache::Prefetch& prefetch = settings_.options.prefetch;
    const auto amount = parseNumber<int64_t>((*arguments)[0]);
    if (!amount || *amount < 0 || *amount > std::numeric_limits<int32_t>::max()) {
      return cursor_.error("prefetch amount should be positive");
    }
    prefetch.amount = static_cast<uint32_t>(*amount);
    if (arguments->size() > 1) {
      const auto gap = config::parseDuration((*arguments)[1]);
      if (!gap) return cursor_.error(gap.error().message);
      prefetch.gap = *gap;
    }
    if (arguments->size() > 2) {
      std::string_view text = (*arguments)[2];
      const bool percent = text.ends_with('%');
      if (percent) text.remove_suffix(1);
      const auto percentage = parseNumber<int64_t>(text);
      if (!percent || !percentage || *percentage < 10 || *percentage > 90) {
        return cursor_.error(fmt::format("percentage should fall in range [10%, 90%]: '{}'", (*arguments)[2]));
      }
      prefetch.percentage = static_cast<uint32_t>(*percentage);
    }
    return {};
  }

  // `serve_stale [DURATION [immediate [TTL [RECHECK]]]]`, `serve_stale [DURATION [verify [TIMEOUT [TTL [RECHECK]]]]]`
  Result<void> readServeStale() {
    const auto arguments = cursor_.args(0, 5);
    if (!arguments) return tl::unexpected(arguments.error());
    std::vector<std::chrono::nanoseconds> durations;
    for (size_t i = 0; i < arguments->size(); ++i) {
      if (i == kStaleMode) continue;
      const auto duration = config::parseDuration((*arguments)[i]);
      if (!duration) return cursor_.error(duration.error().message);
      if (duration->count() < 0) return cursor_.error("invalid negative duration for serve_stale");
      durations.push_back(*duration);
    }
    const std::string mode = arguments->size() > kStaleMode ? lowerCase((*arguments)[kStaleMode]) : "immediate";
    if (mode != "immediate" && mode != "verify")
      return cursor_.error(fmt::format("invalid value for serve_stale refresh mode: {}", (*arguments)[kStaleMode]));
    has_serve_stale_ = true;
    return setServeStale(mode == "verify", durations);
  }

  // `durations`: the arguments but for the mode, as many as there are.
  Result<void> setServeStale(bool verify, std::span<const std::chrono::nanoseconds> durations) {
    using std::chrono::ceil;
    const size_t count = durations.size();
    const size_t ttl = verify ? 2 : 1;
    if (count > ttl + 2) return cursor_.argError();
    settings_.verify_stale = verify;
    // 0 alone means never.
    settings_.options.serve_stale =
        count > 0 ? ceil<std::chrono::seconds>(durations[0]) : std::chrono::seconds(std::chrono::hours(1));
    if (verify && count > 1) {
      if (durations[1].count() == 0) return cursor_.error("the time to verify a stale answer in must be above 0");
      settings_.verify_time = ceil<std::chrono::milliseconds>(durations[1]);
    }
    if (count > ttl) settings_.stale_ttl = std::min(ceil<std::chrono::seconds>(durations[ttl]), kMaxStaleTtl);
    if (count > ttl + 1) {
      if (durations[ttl + 1] > kMaxRecheck)
        return cursor_.error("a failure recheck of over 5 minutes is not permitted");
      settings_.options.recheck = durations[ttl + 1];
    }
    return {};
  }

  // `serve_stale_policy prefer_positive`
  Result<void> readServeStalePolicy() {
    const auto policy = cursor_.oneArg();
    if (!policy) return tl::unexpected(policy.error());
    if (*policy != "prefer_positive") return cursor_.error(fmt::format("unknown serve_stale_policy '{}'", *policy));
    settings_.options.prefer_positive = true;
    return {};
  }

  Result<void> readServfail() {
    const auto argument = cursor_.oneArg();
    if (!argument) return tl::unexpected(argument.error());
    const auto duration = config::parseDuration(*argument);
    if (!duration) return cursor_.error(duration.error().message);
    if (duration->count() < 0) return cursor_.error("invalid negative ttl for servfail");
    if (*duration > std::chrono::minutes(5))
      return cursor_.error("caching SERVFAIL responses over 5 minutes is not permitted");
    settings_.options.failure_ttl = *duration;
    return {};
  }

  // `disable success|denial [ZONES…]`
  Result<void> readDisable() {
    auto arguments = cursor_.args(1);
    if (!arguments) return tl::unexpected(arguments.error());
    const std::string type = arguments->front();
    if (type != "success" && type != "denial")
      return cursor_.error(fmt::format("cache type must be success or denial: '{}'", type));
    arguments->erase(arguments->begin());
    auto zones = config::parseZones(cursor_, *arguments);
    if (!zones) return tl::unexpected(zones.error());
    if (zones->empty()) zones->emplace_back();
    auto& disabled = (type == "success" ? settings_.options.success : settings_.options.denial).disabled;
    disabled.insert(disabled.end(), zones->begin(), zones->end());
    return {};
  }

  config::DirectiveCursor& cursor_;
  resolver::CacheSettings settings_;
  bool has_serve_stale_ = false;
};

}  // namespace

Result<void> CacheDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  auto settings = CacheParser(cursor).parse();
  if (!settings) return tl::unexpected(settings.error());
  settings_ = std::move(*settings);
  return {};
}

Result<void> CacheDirective::prepare(resolve::Process& process, const resolve::Block&) {
  if (settings_.directory.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(settings_.directory, error);
  const Result<void> known = error ? fail(error.message()) : process.checkWritten(settings_.directory);
  if (known) return {};
  return fail(fmt::format("plugin/cache: persist {}: {}", settings_.directory, known.error().message));
}

std::vector<std::string> CacheDirective::writtenDirectories() const {
  return settings_.directory.empty() ? std::vector<std::string>() : std::vector{settings_.directory};
}

const resolve::DirectiveType kCacheDirective{.name = "cache",
                                             .syntax = "cache [TTL] [ZONES...] [{ ... }]",
                                             .make = resolve::makeDirective<CacheDirective>,
                                             .once = true};

}  // namespace idetcd::directive
