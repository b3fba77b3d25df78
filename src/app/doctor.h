// `idetcd doctor`: looks at the machine and at what a Corefile says of it, all at once, and changes nothing. Asks the server
// that runs and the etcd that is configured, nobody else. Blocks, for 5 s at most.
#pragma once

#include "base/std.h"

namespace idetcd::app {

struct Examined {
  // {"corefile": name, "findings": [{"check", "state", "finding", "fix"}], "errors": number, "warnings": number}; "fix"
  // where there is one.
  std::string json;
  // False: something takes longer, on threads that are left to themselves; the process has to end by _exit().
  bool at_rest = true;
};

// `corefile`: its path, or "stdin"; empty: that of the working directory, or else of /etc/idetcd, or else the server's
// default. `socket`: of the server that is asked; none: the only one there is. REQUIRES: one thread.
Examined examine(std::string corefile, const std::optional<std::string>& socket);

}  // namespace idetcd::app
