// What a service manager hands to a process that it starts, in environment variables: sd_listen_fds(3), sd_notify(3),
// sd_watchdog_enabled(3). systemd is one such manager; the protocol is documented as stable, and needs no library.
#pragma once

#include "base/file_descriptor.h"

namespace idetcd::service {

// A descriptor of $LISTEN_FDS: of a socket unit, or of the manager's descriptor store.
struct GivenDescriptor {
  FileDescriptor fd;
  std::string name;  // of $LISTEN_FDNAMES
};

struct Given {
  std::string notify_socket;              // of the manager: "/path" or "@abstract"; empty: there is none
  std::chrono::microseconds watchdog{0};  // within which the manager wants a sign of life; 0: it wants none
  std::vector<GivenDescriptor> descriptors;
};

// Takes it out of the environment, so that no program that is started later takes it for its own; the descriptors are
// closed by execve(2) from now on. What is meant for another process ($LISTEN_PID, $WATCHDOG_PID) is left out.
// REQUIRES: one thread.
Given takeGiven();

}  // namespace idetcd::service
