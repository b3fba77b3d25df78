// The confinement of the server, in the two steps in which app/run.cc takes it:
//
//   1. limitRights()   first of all: capabilities, no_new_privs, core dumps. What is read afterwards, the Corefile among
//                      it, needs no more than a reload will, and what is started has no more: the helper of
//                      program_runner.h gives the rights of the start up
//   2. confine()       when the Corefile has said where the server writes, before the first thread and before anything
//                      of the network is read: the rights of the start, Landlock, then the filter of system calls
//
// What needs more rights than a reload has, once and at the start (to attach an XDP program), belongs between the two:
// directives do it in beforeConfinement(). The rights of the start, which the first step keeps and the second drops, are
// in rights.h.
//
// What a kernel or a container refuses is left out, and said in the log: a machine without a name service is worse than
// one whose name service has more rights than it needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace idetcd::sandbox {

enum class Mode : uint8_t {
  kOn,
  kLog,  // the filter of system calls reports and allows
  kOff,  // the process keeps what it was given
};

// What the operator should know, once there is a log.
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
