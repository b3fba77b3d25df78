// Is this the answer to that query? A rate of wrong answers is not a rate. Any thread; no allocation.
#pragma once

#include <cstdint>
#include <span>

#include "load/query_source.h"

namespace idetcd::bench {

// QR, rcode, the question byte for byte, ANCOUNT, and in the answer the type, class and the very address that belongs
// to the name; of SRV the target, which is the name itself. The ID is the caller's. REQUIRES: `query` was made by QuerySource.
bool isRightAnswer(std::span<const uint8_t> query, const Expectation& expectation, std::span<const uint8_t> answer);

// The echo's answer: the query with QR set.
bool isEcho(std::span<const uint8_t> query, std::span<const uint8_t> answer);

}  // namespace idetcd::bench
