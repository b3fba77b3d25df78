// Names that must never be sent to public servers: RFC 6761, RFC 6303, RFC 7793, RFC 6762 (`local`), RFC 7686
// (`onion`), RFC 8375 (`home.arpa`), RFC 9462 (`resolver.arpa`), RFC 9476 (`alt`). `localhost` and all below have the
// loopback addresses, and these its name; other special zones are empty: NXDOMAIN below, SOA and NS at them (RFC 6303
// §3). The DS of a zone below `arpa` is its parent's (RFC 4035 §3.1.4.1). Any thread; no allocation.
#pragma once

#include "dns/name.h"
#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::resolver {

// Whether servers may be asked for this name. Every name that is not special: yes. A special one: if it is within one
// of `named`, the root excepted, since these servers are configured for it (RFC 6303 §4, RFC 6761 §6); names of private
// networks, `local` and `home.arpa` also if all of the servers are private themselves, since such a server (a VPC's, a
// home router) knows them. `localhost` and the names of the loopback addresses: never.
bool mayBeForwarded(const dns::Query& query, std::span<const dns::Name> named, bool servers_are_private);

// Answers a special name, with AA and an extended DNS error, over the query; kNext for every other name.
resolve::QueryOutcome answerSpecialName(const dns::Query& query, size_t limit);

}  // namespace idetcd::resolver
