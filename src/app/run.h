// The whole program. Start-up may throw std::exception: out of memory or descriptors. Main thread.
#pragma once

#include "base/std.h"

namespace idetcd::app {

// Serves, or does what a subcommand or flag asks for; returns the exit status.
int run(std::span<const char* const> arguments);

}  // namespace idetcd::app
