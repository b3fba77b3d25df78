// The directive `cache`.
#include <algorithm>
#include <chrono>
#include <limits>

#include <fmt/format.h>

#include "app/plan_internal.h"
#include "config/duration.h"

namespace idetcd::app {

namespace {

class CacheParser {
 public:
  explicit CacheParser(const config::Directive& directive) : cursor_(directive) {}

  // `cache [TTL] [ZONES…] { … }`
  Result<CachePlan> parse() {
    Strings arguments = cursor_.remainingArgs();
    if (!arguments.empty()) {
      if (const auto ttl = parseInteger(arguments.front())) {
        if (auto set = setTtl(plan_.options.success, *ttl); !set) return tl::unexpected(set.error());
        plan_.options.denial.max_ttl_seconds = plan_.options.success.max_ttl_seconds;
        arguments.erase(arguments.begin());
      }
    }
    auto zones = parseZones(cursor_, arguments);
    if (!zones) return tl::unexpected(zones.error());
    if (!zones->empty()) plan_.zones = std::move(*zones);
    static constexpr OptionTable<CacheParser, 7> kOptions{{
        {"success", &CacheParser::readSuccess},
        {"denial", &CacheParser::readDenial},
        {"prefetch", &CacheParser::readPrefetch},
        {"serve_stale", &CacheParser::readServeStale},
        {"servfail", &CacheParser::readServfail},
        {"disable", &CacheParser::readDisable},
        {"keepttl", &CacheParser::readKeepTtl},
    }};
    if (auto read = readBlock(cursor_, *this, kOptions); !read) return tl::unexpected(read.error());
    return std::move(plan_);
  }

 private:
  Result<void> readSuccess() { return readPool(plan_.options.success); }
  Result<void> readDenial() { return readPool(plan_.options.denial); }
  Result<void> readKeepTtl() { return readFlag(cursor_, plan_.options.keep_ttl); }

  Result<void> setTtl(resolve::Cache::Pool& pool, int64_t ttl) {
    if (ttl <= 0 || ttl > std::numeric_limits<int32_t>::max()) {
      return cursor_.error(fmt::format("cache TTL can not be zero or negative: {}", ttl));
    }
    pool.max_ttl_seconds = static_cast<uint32_t>(ttl);
    pool.min_ttl_seconds = std::min(pool.min_ttl_seconds, pool.max_ttl_seconds);
    return {};
  }

  // `success CAPACITY [TTL] [MINTTL]`
  Result<void> readPool(resolve::Cache::Pool& pool) {
    const auto arguments = cursor_.args(1, 3);
    if (!arguments) return tl::unexpected(arguments.error());
    std::vector<int64_t> numbers;
    for (const std::string& argument : *arguments) {
      const auto number = parseInteger(argument);
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
    resolve::Cache::Prefetch& prefetch = plan_.options.prefetch;
    const auto amount = parseInteger((*arguments)[0]);
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
      const auto percentage = parseInteger(text);
      if (!percent || !percentage || *percentage < 10 || *percentage > 90) {
        return cursor_.error(fmt::format("percentage should fall in range [10%, 90%]: '{}'", (*arguments)[2]));
      }
      prefetch.percentage = static_cast<uint32_t>(*percentage);
    }
    return {};
  }

  // `serve_stale [DURATION] [immediate|verify]`
  Result<void> readServeStale() {
    const auto arguments = cursor_.args(0, 2);
    if (!arguments) return tl::unexpected(arguments.error());
    plan_.options.serve_stale = std::chrono::hours(1);
    if (!arguments->empty()) {
      const auto duration = config::parseDuration((*arguments)[0]);
      if (!duration) return cursor_.error(duration.error().message);
      if (duration->count() < 0) return cursor_.error("invalid negative duration for serve_stale");
      plan_.options.serve_stale = std::chrono::ceil<std::chrono::seconds>(*duration);  // 0 alone means never
    }
    if (arguments->size() > 1) {
      const std::string& mode = (*arguments)[1];
      if (mode != "immediate" && mode != "verify")
        return cursor_.error(fmt::format("invalid value for serve_stale refresh mode: {}", mode));
      plan_.verify_stale = mode == "verify";
    }
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
    plan_.options.failure_ttl = *duration;
    return {};
  }

  // `disable success|denial`
  Result<void> readDisable() {
    const auto arguments = cursor_.args(1);
    if (!arguments) return tl::unexpected(arguments.error());
    const std::string& type = arguments->front();
    if (type != "success" && type != "denial")
      return cursor_.error(fmt::format("cache type must be success or denial: '{}'", type));
    if (arguments->size() > 1) return cursor_.error("zones behind `disable` are not supported");
    (type == "success" ? plan_.options.success : plan_.options.denial).enabled = false;
    return {};
  }

  DirectiveCursor cursor_;
  CachePlan plan_;
};

}  // namespace

Result<CachePlan> parseCache(const config::Directive& directive) { return CacheParser(directive).parse(); }

}  // namespace idetcd::app
