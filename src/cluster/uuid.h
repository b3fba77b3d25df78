// Random identities of nodes. Any thread.
#pragma once

#include <string>

namespace idetcd::cluster {

// A version 4 UUID (RFC 9562 §5.4) in lower case, from the kernel's random numbers.
std::string randomUuid();

}  // namespace idetcd::cluster
