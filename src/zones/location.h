// The data of a LOC record (RFC 1876). Any thread.
#pragma once

#include "zones/master_scanner.h"

namespace idetcd::zones {

// DEGREES [MINUTES [SECONDS]] N|S DEGREES [MINUTES [SECONDS]] E|W ALTITUDE [SIZE [PRECISION [PRECISION]]]
Result<void> readLocation(std::span<const Word> words, std::vector<uint8_t>& rdata);

}  // namespace idetcd::zones
