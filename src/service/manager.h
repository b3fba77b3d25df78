// What this process tells the service manager that has started it: sd_notify(3), datagrams to the Unix socket that
// $NOTIFY_SOCKET names. Without a manager nothing is sent.
//
// Messages leave in their order, on the executor: the manager's queue is short (net.unix.max_dgram_qlen), and a loop
// does not wait for it. One that the manager does not take within kPatience is lost. Any thread.
#pragma once

#include "base/executor.h"
#include "base/file_descriptor.h"
#include "base/log.h"

namespace idetcd::service {

class Manager {
 public:
  static constexpr std::chrono::seconds kPatience{2};

  // `address`: Given::notify_socket.
  Manager(std::string address, const std::shared_ptr<Executor>& executor, Logger log);
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  bool exists() const { return link_ != nullptr; }

  void ready();                        // READY=1: it serves, from its start on or after reloading()
  void reloading();                    // RELOADING=1
  void stopping();                     // STOPPING=1
  void alive();                        // WATCHDOG=1
  void status(std::string_view text);  // STATUS=…: a line for the operator. Control characters become spaces

  // FDSTORE=1: the manager keeps a duplicate of `fd`, a socket, until it is removed or the service is stopped, and
  // gives it to the next process of the service (Given::descriptors). `name`: without ':' and control characters, at
  // most 255 bytes. `fd` need not stay open.
  void store(int fd, std::string_view name);
  // FDSTOREREMOVE=1: all of this name.
  void remove(std::string_view name);
  // Waits for `budget` at most until the manager has done what it was told before: BARRIER=1. False: it has not, or
  // there is none. Blocks; not on a loop.
  bool barrier(std::chrono::milliseconds budget);

 private:
  class Link;

  void send(std::string message, FileDescriptor attached = {});

  std::shared_ptr<Link> link_;  // shared with what is still to be sent; null: no manager
  std::shared_ptr<Executor::Strand> strand_;
};

}  // namespace idetcd::service
