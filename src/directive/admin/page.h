// page.html, as the build has embedded it (embed.cmake).
#pragma once

#include "base/std.h"

namespace idetcd::directive {

extern const std::string_view kPage;

}  // namespace idetcd::directive
