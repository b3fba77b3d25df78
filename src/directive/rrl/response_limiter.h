// `rrl`: bounds the rate of responses to each network, so that this server is of no use for flooding somebody whose
// address was put into queries. Of one loop; its thread.
//
// Clients over TCP or with a good cookie have their address, and no limit.
#pragma once

#include "base/hash.h"
#include "base/metrics.h"
#include "dns/name.h"
#include "directive/rrl/counters.h"
#include "directive/rrl/limit_class.h"
#include "directive/rrl/rate_table.h"
#include "resolve/handler.h"

namespace idetcd::directive {

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
  RateVerdict judge(const dns::Query& query, const resolve::Request& request, std::span<const uint8_t> response) override;

 private:
  bool isLimited(const dns::Query& query, const resolve::Request& request) const;
  uint32_t use(const resolve::Request& request, uint8_t kind, uint64_t subject, uint32_t allowance);

  const RrlSettings settings_;
  const HashSeed seed_;
  RateTable table_;
  RrlCounters counters_;
};

}  // namespace idetcd::directive
