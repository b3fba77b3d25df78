// The directive `cache`: keeps answers of upstream servers.
#include "base/file.h"
#include "base/text.h"
#include "config/duration.h"
#include "config/option_table.h"
#include "node/state_directory.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

namespace {

constexpr mode_t kPrivate = 0700;  // what is cached shows what clients have asked
constexpr size_t kStaleMode = 1;   // of `serve_stale`, the argument that says how
constexpr std::chrono::minutes kMaxRecheck{5};
constexpr std::chrono::seconds kMaxStaleTtl = std::chrono::hours(24 * 7);  // RFC 8767 §4: the cap that it recommends

using config::DirectiveCursor;

struct Lines {
  resolver::CacheSettings settings;
  bool has_serve_stale = false;
};

// `persist [DIRECTORY]`
Result<void> readPersist(DirectiveCursor& cursor, Lines& lines) {
  const auto arguments = cursor.args(0, 1);
  if (!arguments) return tl::unexpected(arguments.error());
  lines.settings.directory = arguments->empty() ? node::stateDirectoryOfService() : arguments->front();
  if (lines.settings.directory.empty())
    return cursor.error("persist needs a DIRECTORY where systemd has made none (StateDirectory=)");
  if (!lines.settings.directory.starts_with('/')) return cursor.error("persist needs an absolute path");
  return {};
}

Result<void> setTtl(DirectiveCursor& cursor, resolver::Cache::Pool& pool, int64_t ttl) {
  if (ttl <= 0 || ttl > std::numeric_limits<int32_t>::max()) {
    return cursor.error(fmt::format("cache TTL can not be zero or negative: {}", ttl));
  }
  pool.max_ttl_seconds = static_cast<uint32_t>(ttl);
  pool.min_ttl_seconds = std::min(pool.min_ttl_seconds, pool.max_ttl_seconds);
  return {};
}

// `success CAPACITY [TTL] [MINTTL]`
Result<void> readPool(DirectiveCursor& cursor, resolver::Cache::Pool& pool) {
  const auto arguments = cursor.args(1, 3);
  if (!arguments) return tl::unexpected(arguments.error());
  std::vector<int64_t> numbers;
  for (const std::string& argument : *arguments) {
    const auto number = parseNumber<int64_t>(argument);
    if (!number || *number < 0 || *number > std::numeric_limits<int32_t>::max()) {
      return cursor.error(fmt::format("not a number: '{}'", argument));
    }
    numbers.push_back(*number);
  }
  pool.capacity = static_cast<size_t>(numbers[0]);
  if (numbers.size() > 1) {
    if (auto set = setTtl(cursor, pool, numbers[1]); !set) return set;
  }
  if (numbers.size() > 2) pool.min_ttl_seconds = static_cast<uint32_t>(numbers[2]);
  if (pool.min_ttl_seconds > pool.max_ttl_seconds) return cursor.error("the least TTL is larger than the largest");
  return {};
}

std::string poolText(const void* pool) {
  const auto& of = *static_cast<const resolver::Cache::Pool*>(pool);
  return fmt::format("{}, {} s, {} s", of.capacity, of.max_ttl_seconds, of.min_ttl_seconds);
}

// `prefetch AMOUNT [DURATION] [PERCENTAGE%]`
Result<void> readPrefetch(DirectiveCursor& cursor, Lines& lines) {
  const auto arguments = cursor.args(1, 3);
  if (!arguments) return tl::unexpected(arguments.error());
  resolver::Cache::Prefetch& prefetch = lines.settings.options.prefetch;
  const auto amount = parseNumber<int64_t>((*arguments)[0]);
  if (!amount || *amount < 0 || *amount > std::numeric_limits<int32_t>::max()) {
    return cursor.error("prefetch amount should be positive");
  }
  prefetch.amount = static_cast<uint32_t>(*amount);
  if (arguments->size() > 1) {
    const auto gap = config::parseDuration((*arguments)[1]);
    if (!gap) return cursor.error(gap.error().message);
    prefetch.gap = *gap;
  }
  if (arguments->size() > 2) {
    std::string_view text = (*arguments)[2];
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    const auto percentage = parseNumber<int64_t>(text);
    if (!percent || !percentage || *percentage < 10 || *percentage > 90) {
      return cursor.error(fmt::format("percentage should fall in range [10%, 90%]: '{}'", (*arguments)[2]));
    }
    prefetch.percentage = static_cast<uint32_t>(*percentage);
  }
  return {};
}

// `durations`: the arguments but for the mode, as many as there are.
Result<void> setServeStale(DirectiveCursor& cursor, Lines& lines, bool verify,
                           std::span<const std::chrono::nanoseconds> durations) {
  using std::chrono::ceil;
  const size_t count = durations.size();
  const size_t ttl = verify ? 2 : 1;
  if (count > ttl + 2) return cursor.argError();
  lines.settings.verify_stale = verify;
  // 0 alone means never.
  lines.settings.options.serve_stale =
      count > 0 ? ceil<std::chrono::seconds>(durations[0]) : std::chrono::seconds(std::chrono::hours(1));
  if (verify && count > 1) {
    if (durations[1].count() == 0) return cursor.error("the time to verify a stale answer in must be above 0");
    lines.settings.verify_time = ceil<std::chrono::milliseconds>(durations[1]);
  }
  if (count > ttl) lines.settings.stale_ttl = std::min(ceil<std::chrono::seconds>(durations[ttl]), kMaxStaleTtl);
  if (count > ttl + 1) {
    if (durations[ttl + 1] > kMaxRecheck) return cursor.error("a failure recheck of over 5 minutes is not permitted");
    lines.settings.options.recheck = durations[ttl + 1];
  }
  return {};
}

// `serve_stale [DURATION [immediate [TTL [RECHECK]]]]`, `serve_stale [DURATION [verify [TIMEOUT [TTL [RECHECK]]]]]`
Result<void> readServeStale(DirectiveCursor& cursor, Lines& lines) {
  const auto arguments = cursor.args(0, 5);
  if (!arguments) return tl::unexpected(arguments.error());
  std::vector<std::chrono::nanoseconds> durations;
  for (size_t i = 0; i < arguments->size(); ++i) {
    if (i == kStaleMode) continue;
    const auto duration = config::parseDuration((*arguments)[i]);
    if (!duration) return cursor.error(duration.error().message);
    if (duration->count() < 0) return cursor.error("invalid negative duration for serve_stale");
    durations.push_back(*duration);
  }
  const std::string mode = arguments->size() > kStaleMode ? lowerCase((*arguments)[kStaleMode]) : "immediate";
  if (mode != "immediate" && mode != "verify")
    return cursor.error(fmt::format("invalid value for serve_stale refresh mode: {}", (*arguments)[kStaleMode]));
  lines.has_serve_stale = true;
  return setServeStale(cursor, lines, mode == "verify", durations);
}

// `serve_stale_policy prefer_positive`
Result<void> readServeStalePolicy(DirectiveCursor& cursor, Lines& lines) {
  const auto policy = cursor.oneArg();
  if (!policy) return tl::unexpected(policy.error());
  if (lowerCase(*policy) != "prefer_positive")
    return cursor.error(fmt::format("unknown serve_stale_policy '{}'", *policy));
  if (lines.settings.options.prefer_positive) return cursor.error("serve_stale_policy can be given once");
  lines.settings.options.prefer_positive = true;
  return {};
}

Result<void> readServfail(DirectiveCursor& cursor, Lines& lines) {
  constexpr std::chrono::minutes kMost{5};
  const auto time = config::readDuration(cursor, {.wrong = "invalid negative ttl for servfail"});
  if (!time) return tl::unexpected(time.error());
  if (*time > kMost) return cursor.error("caching SERVFAIL responses over 5 minutes is not permitted");
  lines.settings.options.failure_ttl = *time;
  return {};
}

// `disable success|denial [ZONES…]`
Result<void> readDisable(DirectiveCursor& cursor, Lines& lines) {
  auto arguments = cursor.args(1);
  if (!arguments) return tl::unexpected(arguments.error());
  const std::string type = arguments->front();
  if (type != "success" && type != "denial")
    return cursor.error(fmt::format("cache type must be success or denial: '{}'", type));
  arguments->erase(arguments->begin());
  auto zones = config::parseZones(cursor, *arguments);
  if (!zones) return tl::unexpected(zones.error());
  if (zones->empty()) zones->emplace_back();
  auto& disabled = (type == "success" ? lines.settings.options.success : lines.settings.options.denial).disabled;
  disabled.insert(disabled.end(), zones->begin(), zones->end());
  return {};
}

// `cache [TTL] [ZONES…]`
Result<void> readHead(DirectiveCursor& cursor, Lines& lines) {
  std::vector<std::string> arguments = cursor.remainingArgs();
  config::Problems problems;
  if (!arguments.empty()) {
    if (const auto ttl = parseNumber<int64_t>(arguments.front())) {
      if (auto set = setTtl(cursor, lines.settings.options.success, *ttl); !set) problems.add(set.error().message);
      lines.settings.options.denial.max_ttl_seconds = lines.settings.options.success.max_ttl_seconds;
      arguments.erase(arguments.begin());
    }
  }
  auto zones = config::parseZones(cursor, arguments);
  if (!zones) problems.add(zones.error().message);
  if (zones && !zones->empty()) lines.settings.zones = std::move(*zones);
  return problems.result();
}

const config::Options<Lines>& cacheOptions() {
  using namespace config;
  using Cache = resolver::Cache;
  using O = Cache::Options;
  const auto of = [](Field<O> field) {
    return within(&Lines::settings, within(&resolver::CacheSettings::options, std::move(field)));
  };
  Field<Cache::Pool> pool(readPool);
  pool.text = poolText;
  static const Options<Lines> kOptions{
      Field<Lines>(readHead).orElse(fmt::to_string(O{}.success.max_ttl_seconds)).named("TTL"),
      {{"success", "success CAPACITY [TTL] [MINTTL]", of(within(&O::success, pool))},
       {"denial", "denial CAPACITY [TTL] [MINTTL]", of(within(&O::denial, pool))},
       {"prefetch", "prefetch AMOUNT [DURATION] [PERCENTAGE%]", readPrefetch},
       {"serve_stale", "serve_stale [DURATION] [immediate [TTL [RECHECK]] | verify [TIMEOUT [TTL [RECHECK]]]]",
        readServeStale},
       {"servfail", "servfail DURATION, at most 5m", Field<Lines>(readServfail).orElse(durationText(O{}.failure_ttl))},
       {"serve_stale_policy", "serve_stale_policy prefer_positive", readServeStalePolicy},
       {"disable", "disable success|denial [ZONES...]", readDisable},
       {"keepttl", "keepttl", of(flag(&O::keep_ttl))},
       {"nxdomain_cut", "nxdomain_cut", of(flag(&O::nxdomain_cut))},
       {"persist", "persist [DIRECTORY]", readPersist}}};
  return kOptions;
}

// Answers of `forward` are cached: it makes a Cache for each loop by these settings.
class CacheDirective final : public resolve::Configured<resolver::CacheSettings>, public resolver::SettingsSource {
 public:
  Result<void> read(DirectiveCursor& cursor, const resolve::Block&) override {
    Lines lines;
    if (auto read = cacheOptions().read(cursor, lines); !read) return read;
    if (lines.settings.options.prefer_positive && !lines.has_serve_stale)
      return cursor.error("serve_stale_policy needs serve_stale");
    settings_ = std::move(lines.settings);
    return {};
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    if (settings_.directory.empty()) return {};
    Result<void> known = makeDirectory(settings_.directory, kPrivate);
    if (known) known = process.checkWritten(settings_.directory);
    if (known) return {};
    return fail(fmt::format("plugin/cache: persist {}: {}", settings_.directory, known.error().message));
  }
  std::vector<WrittenDirectory> writtenDirectories() const override {
    if (settings_.directory.empty()) return {};
    return {{.path = settings_.directory, .mode = kPrivate}};
  }
  void fill(resolver::ResolverSettings& to) const override { to.cache = settings_; }
};

}  // namespace

extern const resolve::DirectiveType kCacheDirective{.name = "cache",
                                                    .syntax = "cache [TTL] [ZONES...] [{ ... }]",
                                                    .make = resolve::makeDirective<CacheDirective>,
                                                    .check_files = [](config::NamedFiles& files) { files.checkDirectories("persist"); },
                                                    .once = true,
                                                    .defaults = [] { return cacheOptions().defaults(); }};

}  // namespace idetcd::directive
