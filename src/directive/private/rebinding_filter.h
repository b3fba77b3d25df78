// Withholds what upstreams say if it leads into the own network: by DNS rebinding a page of the world has a browser
// speak with a printer or an admin page nearby, as its own name has that address for a moment. One per server block and
// loop; loop thread only.
//
// An address is an A or AAAA record of the answer, or an ipv4hint or ipv6hint of its HTTPS and SVCB records (RFC 9460
// §7.3), and also the IPv4 address within an IPv6 address that is mapped (RFC 4291 §2.5.5.2), 6to4 (RFC 3056) or of the
// well-known prefix of NAT64 (RFC 6052). The name that was asked for decides, not the owner of
// the record: that is the name by which the client trusts what it connects to, wherever its CNAMEs lead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "dns/query.h"
#include "directive/acl/acl.h"
#include "directive/private/counters.h"
#include "resolve/handler.h"
#include "resolve/stored_response.h"

namespace idetcd::directive {

class RebindingFilter {
 public:
  using Response = std::shared_ptr<const resolve::StoredResponse>;

  // `rules` judge addresses instead of clients, by the name that was asked for: what is not allowed is withheld.
  // `errors` hears of each, and may be null.
  RebindingFilter(std::shared_ptr<const Acl> rules, std::shared_ptr<resolve::FailureObserver> errors,
                  metrics::Scope metrics)
      : rules_(std::move(rules)), errors_(std::move(errors)), counters_(std::move(metrics)) {}

  // `response` itself if its addresses may be known. Else NOERROR without records and with EDE 15 (Blocked), to be kept
  // as long as it. Where it is only the additional section that has such an address, all but that section. REQUIRES:
  // `response` is not null, and answers `query`'s question.
  Response apply(const dns::Query& query, const Response& response);

 private:
  Response filter(const dns::Query& query, const Response& response);
  bool isWithheld(const dns::Query& query, const resolve::StoredResponse& response, size_t first, size_t end) const;
  bool isWithheld(const dns::Query& query, uint16_t type, std::span<const uint8_t> rdata) const;
  bool isHintWithheld(const dns::Query& query, std::span<const uint8_t> rdata) const;
  bool isAddressWithheld(const dns::Query& query, std::span<const uint8_t> address) const;

  const std::shared_ptr<const Acl> rules_;
  const std::shared_ptr<resolve::FailureObserver> errors_;
  // All that wait for a question share its answer, and so what becomes of it.
  Response last_;
  Response last_filtered_;
  RebindingCounters counters_;
};

}  // namespace idetcd::directive
