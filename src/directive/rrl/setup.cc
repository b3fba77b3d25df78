// The directive `rrl`: limits the rate of responses.
#include "config/arguments.h"
#include "config/option_table.h"
#include "directive/rrl/response_limiter.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

namespace {

constexpr int64_t kMaxAllowance = 1'000'000;

struct Lines {
  RrlSettings settings;
  std::array<std::optional<uint32_t>, kLimitClasses> allowances;
};

config::Field<Lines> allowance(LimitClass of) {
  return [of](config::DirectiveCursor& cursor, Lines& lines) -> Result<void> {
    const auto number = config::readNumber(cursor, 0, kMaxAllowance);
    if (!number) return tl::unexpected(number.error());
    lines.allowances[static_cast<size_t>(of)] = static_cast<uint32_t>(*number);
    return {};
  };
}

const config::Options<Lines>& options() {
  using namespace config;
  const auto of = [](auto field) { return within(&Lines::settings, std::move(field)); };
  static const Options<Lines> kOptions{
      of(zonesIfAny(&RrlSettings::zones)),
      {{"window", "window SECONDS, from 1 to 3600", of(number(&RrlSettings::window, 1, 3600))},
       {"ipv4-prefix-length", "ipv4-prefix-length LENGTH, from 1 to 32", of(number(&RrlSettings::ipv4_prefix, 1, 32))},
       {"ipv6-prefix-length", "ipv6-prefix-length LENGTH, from 1 to 128",
        of(number(&RrlSettings::ipv6_prefix, 1, 128))},
       {"responses-per-second", "responses-per-second ALLOWANCE, 0 for no limit", allowance(LimitClass::kAnswer)},
       {"nodata-per-second", "nodata-per-second ALLOWANCE, 0 for no limit", allowance(LimitClass::kNoData)},
       {"nxdomains-per-second", "nxdomains-per-second ALLOWANCE, 0 for no limit", allowance(LimitClass::kNxDomain)},
       {"referrals-per-second", "referrals-per-second ALLOWANCE, 0 for no limit", allowance(LimitClass::kReferral)},
       {"errors-per-second", "errors-per-second ALLOWANCE, 0 for no limit", allowance(LimitClass::kError)},
       {"requests-per-second", "requests-per-second ALLOWANCE, 0 for no limit",
        of(number(&RrlSettings::requests, 0, kMaxAllowance))},
       {"slip-ratio", "slip-ratio N, from 0 to 10", of(number(&RrlSettings::slip_ratio, 0, 10))},
       {"max-table-size", "max-table-size SIZE, from 1 to 10000000",
        of(number(&RrlSettings::table_size, 1, 10'000'000))},
       {"report-only", "report-only", of(flag(&RrlSettings::report_only))}}};
  return kOptions;
}

class RrlDirective final : public resolve::Configured<RrlSettings>, public resolver::SettingsSource {
 public:
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block& block) override {
    Lines lines;
    lines.settings.zones = config::zonesOf(block.keys);
    if (auto read = options().read(cursor, lines); !read) return read;
    const uint32_t usual = lines.allowances[0].value_or(0);
    for (size_t i = 0; i < kLimitClasses; ++i) lines.settings.responses[i] = lines.allowances[i].value_or(usual);
    settings_ = std::move(lines.settings);
    return {};
  }
  Result<void> addTo(resolve::Chain& chain, const resolve::LoopContext& context) override {
    chain.parts.limiter =
        std::make_shared<ResponseLimiter>(settings_, context.process.hash_seed, context.process.metrics.scope());
    return {};
  }
  void fill(resolver::ResolverSettings& to) const override { to.limits_clients = true; }
};

}  // namespace

extern const resolve::DirectiveType kRrlDirective{.name = "rrl",
                                                  .syntax = "rrl [ZONES...] [{ ... }]",
                                                  .make = resolve::makeDirective<RrlDirective>,
                                                  .once = true,
                                                  .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
