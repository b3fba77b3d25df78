// A line `file` of a Corefile.
#pragma once

#include "dns/name.h"

namespace idetcd::directive {

struct ZoneFileSettings {
  std::string path;
  std::vector<dns::Name> zones{};            // the server block's where the directive names none
  std::chrono::milliseconds reload{60'000};  // 0: the file is read once
  std::vector<dns::Name> fallthrough{};      // zones; `fallthrough` without any is the root
};

}  // namespace idetcd::directive
