// `any`: a query for every type is answered with one short record (RFC 8482 §4.2), so that it is of no use for sending
// a large answer to another host. Any thread; no allocation.
#pragma once

#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::directive {

// HINFO "RFC8482" ""; kNext for a query of another type.
resolve::QueryOutcome answerAny(const dns::Query& query, size_t limit, uint16_t flags);

}  // namespace idetcd::directive
