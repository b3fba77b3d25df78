// Identities of nodes. Any thread.
#pragma once

#include "base/random.h"

namespace idetcd::node {

// A version 4 UUID (RFC 9562 §5.4) in lower case.
std::string randomUuid(RandomSource& random);

// Whether it has the form of one, in lower case.
bool isUuid(std::string_view text);

}  // namespace idetcd::node
