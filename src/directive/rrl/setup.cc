#include "directive/rrl/setup.h"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "config/arguments.h"
#include "config/option_table.h"

namespace idetcd::directive {

namespace {

constexpr int64_t kMaxAllowance = 1'000'000;
constexpr int64_t kMaxWindowSeconds = 3600;
constexpr int64_t kMaxSlipRatio = 10;
constexpr int64_t kMaxTableSize = 10'000'000;

class RrlParser {
 public:
  explicit RrlParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  // `rrl [ZONES…] { … }`
  Result<RrlSettings> parse(const resolve::Block& block) {
    const auto head = readZones(block);
    static constexpr config::OptionTable<RrlParser, 12> kOptions{{
        {"window", "window SECONDS, from 1 to 3600", &RrlParser::readWindow},
        {"ipv4-prefix-length", "ipv4-prefix-length LENGTH, from 1 to 32", &RrlParser::readIpv4Prefix},
        {"ipv6-prefix-length", "ipv6-prefix-length LENGTH, from 1 to 128", &RrlParser::readIpv6Prefix},
        {"responses-per-second", "responses-per-second ALLOWANCE, 0 for no limit", &RrlParser::readResponses},
        {"nodata-per-second", "nodata-per-second ALLOWANCE, 0 for no limit", &RrlParser::readNoData},
        {"nxdomains-per-second", "nxdomains-per-second ALLOWANCE, 0 for no limit", &RrlParser::readNxDomains},
        {"referrals-per-second", "referrals-per-second ALLOWANCE, 0 for no limit", &RrlParser::readReferrals},
        {"errors-per-second", "errors-per-second ALLOWANCE, 0 for no limit", &RrlParser::readErrors},
        {"requests-per-second", "requests-per-second ALLOWANCE, 0 for no limit", &RrlParser::readRequests},
        {"slip-ratio", "slip-ratio N, from 0 to 10", &RrlParser::readSlipRatio},
        {"max-table-size", "max-table-size SIZE, from 1 to 10000000", &RrlParser::readTableSize},
        {"report-only", "report-only", &RrlParser::readReportOnly},
    }};
    if (auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head); !read) {
      return tl::unexpected(read.error());
    }
    const uint32_t usual = allowances_[0].value_or(0);
    for (size_t i = 0; i < kLimitClasses; ++i) settings_.responses[i] = allowances_[i].value_or(usual);
    return std::move(settings_);
  }

 private:
  Result<void> readZones(const resolve::Block& block) {
    auto zones = config::parseZonesOr(block.keys, cursor_, cursor_.remainingArgs());
    if (!zones) return tl::unexpected(zones.error());
    settings_.zones = std::move(*zones);
    return {};
  }

  Result<int64_t> readNumber(int64_t least, int64_t most) {
    const auto word = cursor_.oneArg();
    if (!word) return tl::unexpected(word.error());
    const auto number = parseNumber<int64_t>(*word);
    if (number && *number >= least && *number <= most) return *number;
    return cursor_.error(fmt::format("'{}' is no number from {} to {}", *word, least, most));
  }
  template <typename T>
  Result<void> readInto(T& value, int64_t least, int64_t most) {
    const auto number = readNumber(least, most);
    if (!number) return tl::unexpected(number.error());
    value = T(*number);
    return {};
  }
  Result<void> readAllowance(LimitClass of) {
    return readInto(allowances_[static_cast<size_t>(of)].emplace(), 0, kMaxAllowance);
  }

  Result<void> readWindow() { return readInto(settings_.window, 1, kMaxWindowSeconds); }
  Result<void> readIpv4Prefix() { return readInto(settings_.ipv4_prefix, 1, 32); }
  Result<void> readIpv6Prefix() { return readInto(settings_.ipv6_prefix, 1, 128); }
  Result<void> readResponses() { return readAllowance(LimitClass::kAnswer); }
  Result<void> readNoData() { return readAllowance(LimitClass::kNoData); }
  Result<void> readNxDomains() { return readAllowance(LimitClass::kNxDomain); }
  Result<void> readReferrals() { return readAllowance(LimitClass::kReferral); }
  Result<void> readErrors() { return readAllowance(LimitClass::kError); }
  Result<void> readRequests() { return readInto(settings_.requests, 0, kMaxAllowance); }
  Result<void> readSlipRatio() { return readInto(settings_.slip_ratio, 0, kMaxSlipRatio); }
  Result<void> readTableSize() { return readInto(settings_.table_size, 1, kMaxTableSize); }
  Result<void> readReportOnly() { return config::readFlag(cursor_, settings_.report_only); }

  config::DirectiveCursor& cursor_;
  RrlSettings settings_;
  std::array<std::optional<uint32_t>, kLimitClasses> allowances_;
};

}  // namespace

Result<void> RrlDirective::read(config::DirectiveCursor& cursor, const resolve::Block& block) {
  auto settings = RrlParser(cursor).parse(block);
  if (!settings) return tl::unexpected(settings.error());
  settings_ = std::move(*settings);
  return {};
}

Result<void> RrlDirective::addTo(resolve::Chain& chain, const resolve::LoopContext& context) {
  chain.parts.limiter =
      std::make_shared<ResponseLimiter>(settings_, context.process.hash_seed, context.process.metrics.scope());
  return {};
}

const resolve::DirectiveType kRrlDirective{
    .name = "rrl", .syntax = "rrl [ZONES...] [{ ... }]", .make = resolve::makeDirective<RrlDirective>, .once = true};

}  // namespace idetcd::directive
