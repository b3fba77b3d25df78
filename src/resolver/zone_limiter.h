// Limits the outstanding questions about one zone, so that random names of a dead zone leave servers and room to
// others. One per server block and loop, shared by its Forwarders; loop thread only. The zone of a name is learnt from
// the SOA of denials. Until then it begins one label below a public suffix: the top-level domain, a usual second level
// of a country (co.uk), or a configured one; in the reverse tree a /16 or /32. A learnt zone counts only below that.
#pragma once

#include <unordered_map>

#include "base/hash.h"
#include "base/metrics.h"
#include "dns/name.h"
#include "dns/query.h"
#include "resolver/stored_response.h"

namespace idetcd::resolver {

struct ZoneLimitCounters : metrics::Group {
  using Group::Group;

  metrics::Counter refused{*this, "idetcd_zonelimit_refused_total",
                           "Questions that were not asked since as many of their zone were on their way."};
};

class ZoneLimiter {
 public:
  struct Options {
    size_t outstanding = 200;           // questions of a zone
    std::vector<dns::Name> zones{};     // names within these are limited
    std::vector<dns::Name> suffixes{};  // zones begin one label below these, too
  };

  // As long as it lives, its question counts. Must not outlive the limiter.
  class Ticket {
   public:
    Ticket(Ticket&& other) noexcept : limiter_(std::exchange(other.limiter_, nullptr)), zone_(other.zone_) {}
    Ticket& operator=(Ticket&& other) noexcept {
      std::swap(limiter_, other.limiter_);
      std::swap(zone_, other.zone_);
      return *this;
    }
    ~Ticket() {
      if (limiter_ != nullptr) limiter_->end(zone_);
    }

   private:
    friend class ZoneLimiter;
    Ticket(ZoneLimiter* limiter, uint64_t zone) : limiter_(limiter), zone_(zone) {}
    ZoneLimiter* limiter_;  // null: it counts for nothing
    uint64_t zone_;
  };

  ZoneLimiter(Options options, HashSeed seed, metrics::Scope metrics);
  ZoneLimiter(const ZoneLimiter&) = delete;
  ZoneLimiter& operator=(const ZoneLimiter&) = delete;

  // Nothing: the question must not be asked now.
  std::optional<Ticket> begin(const dns::Query& query);
  // Notes a server's answer to `query`.
  void learn(const dns::Query& query, const StoredResponse& response);

  // The zone of a name, as far as it is known: a suffix of it.
  std::span<const uint8_t> zoneOf(std::span<const uint8_t> name) const;
  size_t zones() const { return outstanding_.size(); }  // that are asked about now

 private:
  // Of fixed size, each in the place that its hash says: one that is pushed out is learnt again.
  static constexpr size_t kLearntZones = 16384;

  std::span<const uint8_t> assumedZoneOf(std::span<const uint8_t> name) const;
  bool isLimited(std::span<const uint8_t> name) const;
  uint64_t hashOf(std::span<const uint8_t> zone) const;
  void end(uint64_t zone);

  const Options options_;
  const HashSeed seed_;
  std::vector<uint64_t> learnt_;                      // hashes
  std::unordered_map<uint64_t, size_t> outstanding_;  // by hash; none of them is 0
  ZoneLimitCounters counters_;
};

}  // namespace idetcd::resolver
