// The confinement of the server, in the two steps of app/run.cc:
//
//   1. limitRights()   first of all: capabilities, no_new_privs, core dumps
//   2. confine()       when the Corefile has said where the server writes, before the first thread and anything of
//                      the network: the rights of the start (rights.h), Landlock, then the filter of system calls
//
// Directives use the rights of the start in beforeConfinement(), between the two. What a kernel or a container refuses
// is left out and logged: no name service is worse than one with too many rights.
#pragma once

#include "base/std.h"

namespace idetcd::sandbox {

enum class Mode : uint8_t {
  kOn,
  kLog,  // the filter of system calls reports and allows
  kOff,  // the process keeps what it was given
};

// For the operator, once there is a log.
struct Notice {
  enum class Level : uint8_t { kInfo, kWarning };
  Level level = Level::kWarning;
  std::string text;
};
using Notices = std::vector<Notice>;

// REQUIRES: one thread.
Notices limitRights(Mode mode);

// `directories`: those of file_writes.h. REQUIRES: one thread; limitRights().
Notices confine(Mode mode, const std::vector<std::string>& directories);

}  // namespace idetcd::sandbox
