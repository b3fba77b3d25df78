// Whether a node may answer for its own name.
#pragma once

#include "base/clock.h"

namespace idetcd::naming {

struct Ownership {
  std::string name;
  int64_t id = 0;
  int64_t token = 0;  // fencing token: rises with every owner of the name
  BootClock::time_point deadline;
  int64_t revision = 0;     // of the store when the name was claimed
  int64_t lease = 0;        // under which it is held
  uint64_t cluster_id = 0;  // of the store
};

}  // namespace idetcd::naming
