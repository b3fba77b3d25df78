// What `any` and `whoami` answer. Any thread; no allocation.
#pragma once

#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::directive {

// A query for every type is answered with one short record, HINFO "RFC8482" "" (RFC 8482 §4.2), so that it is of no use
// for sending a large answer to another host; kNext for a query of another type.
resolve::QueryOutcome answerAny(const dns::Query& query, size_t limit, uint16_t flags);

// The address, port and transport of the client, in the additional section.
resolve::QueryOutcome answerWhoami(const dns::Query& query, const resolve::Request& request, uint16_t flags);

}  // namespace idetcd::directive
