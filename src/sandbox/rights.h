// The rights of the process and its children: capabilities(7), and whether a program may give more.
// Capabilities go in two steps: those of the start are given up when the start is done.
#pragma once

#include "base/result.h"

namespace idetcd::sandbox {

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
