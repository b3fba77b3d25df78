#include "directive/rrl/response_limiter.h"

namespace idetcd::directive {

namespace {

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

}  // namespace

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
                                                     std::span<const uint8_t> response) {
  if (!isLimited(query, request)) return RateVerdict::kSend;
  const ClassifiedResponse classified = classify(query, response, seed_);
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

}  // namespace idetcd::directive
