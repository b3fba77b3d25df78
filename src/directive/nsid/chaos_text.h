// Texts of class CH, which a server says of itself (RFC 4892). Any thread; no allocation.
#pragma once

#include "dns/query.h"
#include "resolve/request.h"

namespace idetcd::directive {

constexpr size_t kMaxChaosText = 255;  // bytes of one character-string

// One TXT record each, TTL 0, with AA; none if the query is for another type than TXT or ANY. REQUIRES: none is longer
// than kMaxChaosText.
resolve::QueryOutcome answerWithTexts(const dns::Query& query, size_t limit, uint16_t flags,
                                 std::span<const std::string> texts);

}  // namespace idetcd::directive
