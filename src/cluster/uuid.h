// Identities of nodes. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace idetcd::cluster {

// A version 4 UUID (RFC 9562 §5.4) in lower case, from the kernel's random numbers.
std::string randomUuid();

// Whether it has the form of one, in lower case.
bool isUuid(std::string_view text);

}  // namespace idetcd::cluster
