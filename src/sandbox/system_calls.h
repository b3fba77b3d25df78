// Which system calls the process may make: seccomp(2), by a filter that libseccomp writes.
//
// What the server and its libraries use is allowed; the list in system_calls.cc says what each group is for. Whatever
// else is asked for is refused, not punished by death:
//
//   ENOSYS  what the list does not name. A libc, gRPC or libuv that is newer than the list finds what looks like an
//           older kernel, and does it the old way
//   EPERM   what every kernel has and no part of the server needs: programs, tracing, mounts, modules, other users, modes
//           of files. Who comes upon that in a log is to read of a refusal, not of a missing kernel
//
// To kill the process would stop whoever has taken it over at his first such call, but a refused call gives him nothing
// either; and a call that a library makes once a year would end the name service of a machine. Each refusal is reported
// to the kernel's audit log.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace idetcd::sandbox {

enum class Refusal : uint8_t {
  kRefuse,      // and report
  kReportOnly,  // allow: to find out what a libc that we do not know needs
};

// From now on. 64-bit machines only.
// REQUIRES: one thread, and noNewPrivileges().
Result<void> restrictSystemCalls(Refusal refusal);

}  // namespace idetcd::sandbox
