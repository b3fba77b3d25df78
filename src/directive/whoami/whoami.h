// `whoami`: answers with the address, port and transport of the client, in the additional section. Any thread; no
// allocation.
#pragma once

#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::directive {

resolve::QueryOutcome answerWhoami(const dns::Query& query, const resolve::Request& request, uint16_t flags);

}  // namespace idetcd::directive
