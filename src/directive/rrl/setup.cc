// The directive `rrl`: limits the rate of responses.
#include <bit>

#include "config/option_table.h"
#include "directive/rrl/response_limiter.h"
#include "dns/message_reader.h"
#include "resolve/directive.h"
#include "resolver/resolver_settings.h"

namespace idetcd::directive {

namespace {

constexpr std::chrono::nanoseconds kMostCredit = std::chrono::seconds(1);

// The hash of the owner of the first record of this type in the authority section; 0: there is none.
uint64_t ownerInAuthority(const dns::Query& query, std::span<const uint8_t> response, dns::RrType type, HashSeed seed) {
  dns::MessageReader reader(response, query.question_end);
  dns::RecordView record;
  while (reader.next(record) == dns::ReadStep::kRead) {
    if (record.section != dns::Section::kAuthority || record.type != dns::code(type)) continue;
    dns::ExpandedName owner;
    if (dns::expandName(response, record.owner, owner) == 0) return 0;
    dns::foldCase(owner.wire.data(), owner.size, owner.wire.data());
    return hashBytes(owner.wire.data(), owner.size, seed);
  }
  return 0;
}

// Of the name without its first label, where no SOA says which zone it is.
uint64_t parentOf(const dns::Query& query, HashSeed seed) {
  const size_t label = query.qname_size > 1 ? query.qname[0] + size_t{1} : 0;
  return hashBytes(query.qname + label, query.qname_size - label, seed);
}

constexpr uint8_t kRequests = kLimitClasses;  // the account of a network's queries, beside those of its responses

// The hash's input for the key of an account.
struct AccountName {
  std::array<uint8_t, 16> network{};
  uint64_t subject = 0;
  uint64_t kind = 0;  // of account and address
};
static_assert(std::has_unique_object_representations_v<AccountName>);

void copyBits(const uint8_t* from, unsigned bits, uint8_t* to) {
  std::copy_n(from, bits / 8, to);
  if (bits % 8 != 0) to[bits / 8] = static_cast<uint8_t>(from[bits / 8] & (0xff00u >> bits % 8));
}

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
       {"responses-per-second", "responses-per-second ALLOWANCE, 0 for no limit",
        allowance(LimitClass::kAnswer).orElse("0")},
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

RateTable::RateTable(size_t accounts)
    : rows_(std::bit_ceil((accounts + std::tuple_size_v<decltype(Row::accounts)> - 1) /
                          std::tuple_size_v<decltype(Row::accounts)>)) {}

uint32_t RateTable::use(uint64_t key, std::chrono::nanoseconds cost, std::chrono::nanoseconds most_debt,
                        BootClock::time_point now) {
  auto& accounts = rows_[key & (rows_.size() - 1)].accounts;
  const auto key_high = static_cast<uint32_t>(key >> 32);
  auto* account = std::ranges::find(accounts, key_high, &Account::key_high);
  if (account == accounts.end()) {
    account = std::ranges::min_element(accounts, {}, &Account::paid_until_ns);
    *account = {.paid_until_ns = std::numeric_limits<int64_t>::min(), .key_high = key_high, .refused = 0};
  }
  const int64_t now_ns = std::chrono::nanoseconds(now.time_since_epoch()).count();
  const int64_t paid_ns = std::max(account->paid_until_ns, now_ns - kMostCredit.count()) + cost.count();
  account->paid_until_ns = std::min(paid_ns, now_ns + most_debt.count());
  if (paid_ns <= now_ns) {
    account->refused = 0;
  } else {
    ++account->refused;
  }
  return account->refused;
}

ClassifiedResponse classify(const dns::Query& query, std::span<const uint8_t> response, uint32_t wildcard, HashSeed seed) {
  using dns::Rcode;
  using dns::RrType;
  const dns::HeaderView header(response.data());
  if (header.rcode() == Rcode::kNxDomain) {
    const uint64_t zone = ownerInAuthority(query, response, RrType::kSoa, seed);
    return {LimitClass::kNxDomain, zone != 0 ? zone : parentOf(query, seed)};
  }
  if (header.rcode() != Rcode::kNoError) return {LimitClass::kError, 0};
  const uint64_t name = wildcard != 0 ? wildcard : query.hash;
  if (header.answers() > 0 || header.isTruncated()) return {LimitClass::kAnswer, name ^ query.qtype};
  if (header.authorities() > 0 && ownerInAuthority(query, response, RrType::kSoa, seed) == 0) {
    const uint64_t zone = ownerInAuthority(query, response, RrType::kNs, seed);
    if (zone != 0) return {LimitClass::kReferral, zone};
  }
  return {LimitClass::kNoData, name};
}

bool ResponseLimiter::isLimited(const dns::Query& query, const resolve::Request& request) const {
  if (request.transport != resolve::Transport::kUdp || query.hasGoodCookie()) return false;
  return std::any_of(settings_.zones.begin(), settings_.zones.end(), [&query](const dns::Name& zone) {
    return zone.isRoot() || (query.qname_size > 0 && dns::isNameWithin(query.name(), zone));
  });
}

// As RateTable::use().
uint32_t ResponseLimiter::use(const resolve::Request& request, uint8_t kind, uint64_t subject, uint32_t allowance) {
  if (allowance == 0) return 0;
  const auto address = IpAddress::fromSockaddr(request.source);
  if (!address) return 0;
  const IpAddress client = address->unmapped();
  AccountName name{.subject = subject, .kind = uint64_t{kind} << 1 | (client.isV4() ? 1u : 0u)};
  copyBits(client.data(), client.isV4() ? settings_.ipv4_prefix : settings_.ipv6_prefix, name.network.data());
  const std::chrono::nanoseconds cost = std::chrono::nanoseconds(std::chrono::seconds(1)) / allowance;
  return table_.use(hashBytes(&name, sizeof(name), seed_), cost, settings_.window, BootClock::now());
}

bool ResponseLimiter::mayAsk(const dns::Query& query, const resolve::Request& request) {
  if (settings_.requests == 0 || !isLimited(query, request)) return true;
  if (use(request, kRequests, 0, settings_.requests) == 0) return true;
  counters_.requests_exceeded.add();
  if (settings_.report_only) return true;
  counters_.dropped.add();
  return false;
}

resolve::RateLimiter::RateVerdict ResponseLimiter::judge(const dns::Query& query, const resolve::Request& request,
                                                         std::span<const uint8_t> response, uint32_t wildcard) {
  if (!isLimited(query, request)) return RateVerdict::kSend;
  const ClassifiedResponse classified = classify(query, response, wildcard, seed_);
  const auto kind = static_cast<uint8_t>(classified.limit_class);
  const uint32_t refused = use(request, kind, classified.subject, settings_.responses[kind]);
  if (refused == 0) return RateVerdict::kSend;
  counters_.responses_exceeded.add();
  if (settings_.report_only) return RateVerdict::kSend;
  if (settings_.slip_ratio > 0 && refused % settings_.slip_ratio == 0) {
    counters_.slipped.add();
    return RateVerdict::kTruncate;
  }
  counters_.dropped.add();
  return RateVerdict::kDrop;
}

extern const resolve::DirectiveType kRrlDirective{.name = "rrl",
                                                  .syntax = "rrl [ZONES...] [{ ... }]",
                                                  .make = resolve::makeDirective<RrlDirective>,
                                                  .once = true,
                                                  .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
