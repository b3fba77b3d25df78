// `any`: a query for every type is answered with one short record (RFC 8482 §4.2), so that it is worth nothing to who
// wants to have a large answer sent to somebody else. Any thread; no allocation.
#pragma once

#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::resolve {

// HINFO "RFC8482" ""; kNext for a query of another type.
Outcome answerAny(const dns::Query& query, size_t limit, uint16_t flags);

}  // namespace idetcd::resolve
