// `whoami`: tells the client its own address, port and transport in the additional section. Any thread; no allocation.
#pragma once

#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::resolve {

Outcome answerWhoami(const dns::Query& query, const Request& request, uint16_t flags);

}  // namespace idetcd::resolve
