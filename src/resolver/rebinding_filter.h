// Withholds upstream answers that lead into the own network (DNS rebinding). One per server block and loop; loop thread
// only. It checks A and AAAA records, ipv4hint and ipv6hint of HTTPS and SVCB (RFC 9460 §7.3), and the IPv4 address
// within mapped (RFC 4291 §2.5.5.2), 6to4 (RFC 3056) and NAT64 (RFC 6052) addresses. The name of the query decides, not
// the record's owner: by it the client trusts.
#pragma once

#include "dns/query.h"
#include "resolve/handler.h"
#include "resolver/counters.h"
#include "resolver/stored_response.h"

namespace idetcd::resolver {

class RebindingFilter {
 public:
  using Response = std::shared_ptr<const StoredResponse>;

  // `rules` judge addresses instead of clients, by the name that was asked for: what is not allowed is withheld.
  // `errors` hears of each, and may be null.
  RebindingFilter(std::shared_ptr<const resolve::Gate> rules, std::shared_ptr<resolve::FailureObserver> errors,
                  metrics::Scope metrics)
      : rules_(std::move(rules)), errors_(std::move(errors)), counters_(std::move(metrics)) {}

  // `response` itself if its addresses may be known. Else NOERROR without records and with EDE 15 (Blocked), to be kept
  // as long as it. Where it is only the additional section that has such an address, all but that section. REQUIRES:
  // `response` is not null, and answers `query`'s question.
  Response apply(const dns::Query& query, const Response& response);

 private:
  Response filter(const dns::Query& query, const Response& response);
  bool isWithheld(const dns::Query& query, const StoredResponse& response, size_t first, size_t end) const;
  bool isWithheld(const dns::Query& query, uint16_t type, std::span<const uint8_t> rdata) const;
  bool isHintWithheld(const dns::Query& query, std::span<const uint8_t> rdata) const;
  bool isAddressWithheld(const dns::Query& query, std::span<const uint8_t> address) const;

  const std::shared_ptr<const resolve::Gate> rules_;
  const std::shared_ptr<resolve::FailureObserver> errors_;
  // All that wait for a question share its answer, and so what becomes of it.
  Response last_;
  Response last_filtered_;
  RebindingCounters counters_;
};

}  // namespace idetcd::resolver
