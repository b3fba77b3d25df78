// Durations as Go writes them: "300ms", "1h15m", "1.5s". Pure; any thread.
#pragma once

#include "base/result.h"

namespace idetcd::config {

// As Go's time.ParseDuration, with its error texts: an optional sign, then one or more decimal numbers, each with an
// optional fraction and a unit: ns, us (µs), ms, s, m, h. "0" needs no unit. Fractions below a nanosecond are dropped.
Result<std::chrono::nanoseconds> parseDuration(std::string_view text);

// The same; a number without unit is seconds.
Result<std::chrono::nanoseconds> parseDurationOrSeconds(std::string_view text);

}  // namespace idetcd::config
