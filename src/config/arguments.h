// Common parts of directives' arguments. Any thread.
#pragma once

#include "base/result.h"
#include "config/directive_cursor.h"
#include "config/server_key.h"
#include "dns/name.h"

namespace idetcd::config {

// Zones as arguments: names, or networks that stand for their reverse zones. The error is complete.
Result<std::vector<dns::Name>> parseZones(const DirectiveCursor& cursor, const std::vector<std::string>& arguments);

// Those of a server block.
std::vector<dns::Name> zonesOf(const std::vector<ServerKey>& keys);

}  // namespace idetcd::config
