// gRPC's timers over steps of the wall clock.
//
// The threads that keep the timers of gRPC 1.51 (deadlines of calls, further attempts at a connection, pings) wait by
// Abseil, which gives the kernel a moment of CLOCK_REALTIME. When that clock is set back by an hour while they wait, no
// timer comes for an hour: no connection is made again and no call ends, whatever else happens, since a timer that is
// overdue hides all later ones. So `syscall`, through which Abseil reaches futex(2), is redefined for this process: a
// wait until a moment of CLOCK_REALTIME waits for what is left until then by CLOCK_MONOTONIC, which cannot be set. All
// else goes to libc's. Releases of Abseil since 2023 wait like that by themselves.
#pragma once

namespace idetcd::etcd {

// Has no effect of its own: a program that refers to it is linked with the definition.
void useSteadyWaits();

}  // namespace idetcd::etcd
