// How a directive has the Corefile read again. A digest is of the Corefile and of all that it imports.
#pragma once

#include "base/std.h"

namespace idetcd::resolve {

struct Reloads {
  // Of what the files hold now, were it nonsense or not there at all. Blocks on the file system; any thread. Null: they
  // cannot be read again.
  std::function<std::string()> digest;
  // As SIGHUP does. On the first loop's thread.
  std::function<void()> start;
  // Of the configuration in use, and of the last one tried, maybe refused. The first loop's thread.
  std::string in_use;
  std::string tried;
  // One waits for another, or for what the last configuration still gives up. The first loop's thread.
  bool waits = false;
};

}  // namespace idetcd::resolve
