// Answers AXFR (RFC 5936) and IXFR (RFC 1995) from the zones of other directives.
//
//   client that may not have it    REFUSED
//   no zone of this name           NOTAUTH
//   a zone that is not there yet   SERVFAIL, as are more transfers at once than Transfers has places for
//   IXFR with the zone's serial    the SOA alone; over UDP always
//   IXFR with one that is known    the changes since then
//   AXFR, any other IXFR           all of the zone, as it is when the first message leaves
//   AXFR over UDP                  FORMERR
//
// One loop.
#pragma once

#include <map>

#include "base/log.h"
#include "base/metrics.h"
#include "directive/transfer/transfer_settings.h"
#include "resolve/directive.h"
#include "zones/zone_copy.h"

namespace idetcd::directive {

// Of one loop.
struct TransferCounters : metrics::Group {
  using Group::Group;
  metrics::Counter sent{*this, "idetcd_transfers_total", "Zones that were sent to others, whole."};
  metrics::Counter changes{*this, "idetcd_transfers_incremental_total", "Changes of zones that were sent to others (IXFR)."};
};

// Those that are under way in this process. Any thread.
class Transfers final : public resolve::ProcessState {
 public:
  static constexpr size_t kMost = 64;
  static constexpr size_t kMostOfClient = 16;  // of an IPv4 address, or of an IPv6 network of 64 bits
  explicit Transfers(resolve::Process&) {}

  // Counts for as long as it lives.
  using Place = std::shared_ptr<const void>;
  // Null: there are kMost, or kMostOfClient of this one.
  Place enter(const IpAddress& address);

 private:
  struct Counts {
    std::mutex mutex{};  // guards the others
    size_t all = 0;
    std::map<IpAddress, size_t> of_clients{};
  };
  const std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

using PublishedZones = std::vector<std::shared_ptr<const zones::PublishedZones>>;

class TransferHandler final : public resolve::Handler {
 public:
  struct Context {
    std::shared_ptr<const std::vector<TransferSettings>> settings;
    PublishedZones zones;
    Transfers& transfers;
    Logger log;
    metrics::Scope metrics{};
  };

  explicit TransferHandler(Context context)
      : context_(std::move(context)), counters_(std::make_shared<TransferCounters>(context_.metrics)) {}
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;
  const TransferCounters& counters() const { return *counters_; }

 private:
  // `have`: the serial of the client's copy, to which it takes changes; nothing: it needs all of the zone.
  resolve::QueryOutcome send(const std::shared_ptr<const zones::PublishedZones>& zones, std::optional<uint32_t> have,
                             const dns::Query& query, const resolve::Request& request, uint16_t flags);

  const Context context_;
  const std::shared_ptr<TransferCounters> counters_;
};

}  // namespace idetcd::directive
