// The parameters of SVCB and HTTPS records (RFC 9460). Any thread.
#pragma once

#include "zones/master_scanner.h"

namespace idetcd::zones {

// KEY, KEY=VALUE or KEY="VALUE" each, in any order (§2.1).
Result<void> readServiceParameters(std::span<const Word> words, std::vector<uint8_t>& rdata);

}  // namespace idetcd::zones
