// What a node may say about its own name.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace idetcd::cluster {

struct Ownership {
  std::string name;
  int64_t id = 0;
  int64_t token = 0;  // fencing token: rises with every owner of the name
  BootClock::time_point deadline;
};

}  // namespace idetcd::cluster
