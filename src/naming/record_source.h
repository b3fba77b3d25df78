// Where the names of all nodes come from: it is the one that writes the record store. etcd's way is Mirror.
#pragma once

#include "base/std.h"

namespace idetcd::naming {

class RecordSource {
 public:
  virtual ~RecordSource() = default;

  // The store holds what a file said (saved_names.h). REQUIRES: before it is started.
  virtual void restored() = 0;
  // Rises with every change of the store that the source has brought. Scheduler's thread.
  virtual uint64_t changes() const = 0;
};

}  // namespace idetcd::naming
