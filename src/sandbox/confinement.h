// The confinement of the server, in the two steps of app/run.cc:
//
//   1. limitRights()   first of all: capabilities, no_new_privs, core dumps
//   2. confine()       when the Corefile has said where the server writes, before the first thread and anything of
//                      the network: the rights of the start, Landlock, then the filter of system calls
//
// Directives use the rights of the start in beforeConfinement(), between the two. What a kernel or a container refuses
// is left out and logged: no name service is worse than one with too many rights.
#pragma once

#include "base/log.h"
#include "base/result.h"

namespace idetcd::sandbox {

enum class Mode : uint8_t {
  kOn,
  kLog,  // the filter of system calls reports and allows
  kOff,  // the process keeps what it was given
};

// For the operator, once there is a log.
struct Notice {
  Logger::Level level = Logger::Level::kWarning;
  std::string text;
};
using Notices = std::vector<Notice>;

// REQUIRES: one thread.
Notices limitRights(Mode mode);

// `directories`: as of allowWritesOnlyBelow(). REQUIRES: one thread; limitRights().
Notices confine(Mode mode, const std::vector<std::string>& directories);

// Where the process may write: Landlock, landlock(7). Only writing is restricted, as a reload may name files to read
// that nobody knew of at the start.

// From now on the process can make, write, truncate, rename and remove files below `directories` only. Those that are
// not there are left out: what uses them says what is wrong. A descriptor that is open already is not affected. A
// directory that is replaced by another one of its name is another directory.
//
// Before Linux 6.2 truncate(2), of a file that the user may write, is not restricted; before 5.19 renaming to another
// directory is refused everywhere. kNotFound: the kernel has no Landlock, or it is not enabled.
// REQUIRES: one thread, and noNewPrivileges().
Result<void> allowWritesOnlyBelow(const std::vector<std::string>& directories);

// The rights of the process and its children: capabilities(7), and whether a program may give more.
// Capabilities go in two steps: those of the start are given up when the start is done.

// Gives up every capability but CAP_NET_BIND_SERVICE, by which a reload opens a port below 1024, and those by which an
// XDP program is loaded and attached: CAP_BPF, CAP_PERFMON (the verifier lets such a program compute with pointers) and
// CAP_NET_ADMIN. These three stay in the permitted and the effective set alone, so that no program that is started gets
// them, not even as root. What the process was not given it does not get. A process that may not change its bounding set
// (it lacks CAP_SETPCAP, so it is not root) keeps that set; with noNewPrivileges() nothing can draw on it.
//
// To a process of root this means that it reads and writes files as their modes say: without CAP_DAC_OVERRIDE root is a
// user like others.
// REQUIRES: the process has one thread. Capabilities are a thread's; later ones inherit them.
Result<void> keepRightsOfStart();

// As keepRightsOfStart(), and gives up the rights of the start too. What they were used for stays: a descriptor of a map
// or a link needs no capability. Alone or as the second step.
// REQUIRES: as above.
Result<void> keepOnlyBindingOfPorts();

// Whether this thread has the capability of that number in its effective set.
bool hasCapability(int capability);

// No program that this process or a child of it runs has more rights by its file (set-user-ID, file capabilities).
// REQUIRES: as above.
Result<void> noNewPrivileges();

// The process leaves no core dump, and other processes of its user can neither trace it nor read its memory.
//
// etcd's password, keys of TLS and secrets of cookies are in its memory, in copies that the libraries make too. To mark
// the pages that hold them (MADV_DONTDUMP) would miss these, and cannot be shown to be complete; a dump without any
// memory says little. Who hunts a crash turns the sandbox off, knowing what the dump then holds.
Result<void> leaveNoDump();

}  // namespace idetcd::sandbox
