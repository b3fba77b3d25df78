// gRPC's timers over steps of the wall clock. gRPC 1.51 waits by Abseil until a moment of CLOCK_REALTIME: set back by
// an hour, no timer comes for an hour, so no connection is made and no call ends. So `syscall`, by which Abseil calls
// futex(2), is redefined: such a wait lasts as long by CLOCK_MONOTONIC. All else goes to libc. Abseil since 2023 needs
// this no more.
#pragma once

namespace idetcd::etcd {

// Has no effect of its own: a program that refers to it is linked with the definition.
void useSteadyWaits();

}  // namespace idetcd::etcd
