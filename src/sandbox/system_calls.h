// Limits the system calls of the process: seccomp(2), by a filter that libseccomp writes. system_calls.cc lists the
// allowed ones by purpose. Others are refused and audited; the process is not killed, since a rare call of a library
// would end the machine's name service:
//
//   ENOSYS  not in the list: a newer libc, gRPC or libuv falls back as on an older kernel
//   EPERM   what no part of the server needs: programs, tracing, mounts, modules, other users, modes of files
#pragma once

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
