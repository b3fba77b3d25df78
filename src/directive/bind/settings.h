// The settings of the directive `bind`: addresses and names of interfaces.
#pragma once

#include "base/std.h"

namespace idetcd::directive {

struct BindSettings {
  std::vector<std::string> listen;
  std::vector<std::string> except;
};

}  // namespace idetcd::directive
