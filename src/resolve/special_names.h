// Names that mean something on this machine or this network only and must never be asked of the world: RFC 6761,
// RFC 6303, RFC 7793, RFC 6762 (`local`), RFC 7686 (`onion`), RFC 9462 (`resolver.arpa`). Any thread; no allocation.
//
// `localhost` and all below it have the loopback addresses; the loopback addresses are named `localhost`; every other
// special zone is empty: NXDOMAIN below it, SOA and NS at it (RFC 6303 §3).
#pragma once

#include <span>

#include "dns/name.h"
#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::resolve {

// Answers a query for a special name, with AA, over the query; kNext for every other name. A name within one of
// `forwarded` is not special here if that zone is within the special one: somebody has configured a server for it
// (RFC 6303 §4, RFC 6761 §6). `localhost` and the names of the loopback addresses are always special.
Outcome answerSpecialName(const dns::Query& query, size_t limit, std::span<const dns::Name> forwarded);

}  // namespace idetcd::resolve
