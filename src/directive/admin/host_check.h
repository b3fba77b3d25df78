// Whether the Host of a request can be meant for this server. A page of a stranger whose name leads here (DNS rebinding)
// has that name there, and a browser lets it read all that it is answered. Any thread.
#pragma once

#include "base/std.h"

namespace idetcd::directive {

// The host without port, brackets and the dot at the end, in lower case; empty: it is none.
std::string hostOf(std::string_view field);

// An IP address, or a name that means this machine everywhere: nobody can redirect it. As from hostOf().
bool isAddressOrLocalhost(std::string_view host);

}  // namespace idetcd::directive
