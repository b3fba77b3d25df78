// `rrl`: bounds the rate of responses to each network, so that queries with a forged source address cannot flood it. Of
// one loop; its thread.
//
// Clients over TCP or with a good cookie have their address, and no limit.
#pragma once

#include "base/clock.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "dns/name.h"
#include "resolve/handler.h"

namespace idetcd::directive {

// Accounts with an allowance a second, in a table of fixed size. One thread; no allocation but in the constructor. An
// account is the time up to which it has paid: each use moves it on by what one use costs. Credit is cut off at one
// second; a time in the future is debt, and uses are refused until it is over. Refused uses count too, up to a limit. A
// full row loses the account with the least debt; the key is hashed with a secret, so nobody can aim at a row.
class RateTable {
 public:
  // At least `accounts` of them.
  explicit RateTable(size_t accounts);

  // Uses the account `key` (a hash) once, for `cost` time. 0: allowed; else the number of refusals since.
  uint32_t use(uint64_t key, std::chrono::nanoseconds cost, std::chrono::nanoseconds most_debt,
               BootClock::time_point now);

 private:
  struct Account {
    int64_t paid_until_ns = 0;  // of BootClock
    uint32_t key_high = 0;
    uint32_t refused = 0;
  };
  struct alignas(64) Row {  // a cache line
    std::array<Account, 4> accounts;
  };

  std::vector<Row> rows_;  // a power of two
};

// The class of a response for limits. Any thread; no allocation.
enum class LimitClass : uint8_t {
  kAnswer,
  kNoData,
  kNxDomain,
  kReferral,
  kError,
};
inline constexpr size_t kLimitClasses = 5;

struct ClassifiedResponse {
  LimitClass limit_class = LimitClass::kError;
  // Of what else is counted together with it: answers of one name and type, denials of types of one name, of names of
  // one zone (whatever random name is asked for), referrals to one zone, and all errors. Names that one wildcard or DNAME
  // has answered are one name.
  uint64_t subject = 0;
};

// `response`: one of ours to `query`. `wildcard`: as for resolve::RateLimiter::judge().
ClassifiedResponse classify(const dns::Query& query, std::span<const uint8_t> response, uint32_t wildcard, HashSeed seed);

// Responses that a ResponseLimiter let pass and held back. Written on its loop's thread.
struct RrlCounters : metrics::Group {
  using Group::Group;

  metrics::Counter requests_exceeded{*this, "idetcd_rrl_requests_exceeded_total",
                                     "Queries over UDP beyond what their network may ask."};
  metrics::Counter responses_exceeded{*this, "idetcd_rrl_responses_exceeded_total",
                                      "Responses over UDP beyond what their network may get."};
  metrics::Counter dropped{*this, "idetcd_rrl_dropped_total", "Of these two, those that were not answered."};
  metrics::Counter slipped{*this, "idetcd_rrl_slipped_total",
                           "Of the responses, those that were sent empty, with TC, so that the client asks over TCP."};
};

struct RrlSettings {
  std::vector<dns::Name> zones;
  std::chrono::seconds window{15};
  uint8_t ipv4_prefix = 24;
  uint8_t ipv6_prefix = 56;
  // A second; 0: no limit. In the order of LimitClass.
  std::array<uint32_t, kLimitClasses> responses{};
  uint32_t requests = 0;
  uint32_t slip_ratio = 2;  // each so many-th is sent truncated; 0: none
  size_t table_size = 100000;
  bool report_only = false;
};

class ResponseLimiter final : public resolve::RateLimiter {
 public:
  ResponseLimiter(RrlSettings settings, HashSeed seed, const metrics::Scope& metrics)
      : settings_(std::move(settings)), seed_(seed), table_(settings_.table_size), counters_(metrics) {}

  bool mayAsk(const dns::Query& query, const resolve::Request& request) override;
  RateVerdict judge(const dns::Query& query, const resolve::Request& request, std::span<const uint8_t> response,
                    uint32_t wildcard) override;

 private:
  bool isLimited(const dns::Query& query, const resolve::Request& request) const;
  uint32_t use(const resolve::Request& request, uint8_t kind, uint64_t subject, uint32_t allowance);

  const RrlSettings settings_;
  const HashSeed seed_;
  RateTable table_;
  RrlCounters counters_;
};

}  // namespace idetcd::directive
