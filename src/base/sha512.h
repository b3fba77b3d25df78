// SHA-512 (FIPS 180-4), as sha512sum(1) prints it: 128 hexadecimal digits in lower case. Any thread.
#pragma once

#include "base/std.h"

namespace idetcd {

std::string sha512(std::string_view bytes);

}  // namespace idetcd
