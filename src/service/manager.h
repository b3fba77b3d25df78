// Messages of this process to the service manager that has started it: sd_notify(3), datagrams to the Unix socket that
// $NOTIFY_SOCKET names. Without a manager nothing is sent.
//
// Messages leave in their order, on the executor: the manager's queue is short (net.unix.max_dgram_qlen), and a loop
// does not wait for it. One that the manager does not take within kPatience is lost. Any thread.
#pragma once

#include "base/executor.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/result.h"

namespace idetcd::service {

// A descriptor of $LISTEN_FDS: of a socket unit, or of the manager's descriptor store.
struct GivenDescriptor {
  FileDescriptor fd;
  std::string name;  // of $LISTEN_FDNAMES
};

// The gifts of a service manager to a process that it starts, in environment variables: sd_listen_fds(3), sd_notify(3),
// sd_watchdog_enabled(3). systemd is one such manager; the protocol is documented as stable, and needs no library.
struct Given {
  std::string notify_socket;              // of the manager: "/path" or "@abstract"; empty: there is none
  std::chrono::microseconds watchdog{0};  // within which the manager wants a sign of life; 0: it wants none
  std::vector<GivenDescriptor> descriptors;
};

// Takes it out of the environment, so that no program that is started later takes it for its own; the descriptors are
// closed by execve(2) from now on. What is meant for another process ($LISTEN_PID, $WATCHDOG_PID) is left out.
// REQUIRES: one thread.
Given takeGiven();

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

// Hands a server's sockets to its successor without a service manager: over a Unix socket (SCM_RIGHTS), one user.
//
//   successor ── connects; the server goes on ───────► server
//             ── kGive, once nothing is left that can fail ──►
//             ◄── one message a socket: its name, and the descriptor; then kEnd ──
//             ◄── end of the connection, when the process has ended ──
//
// The successor waits for the end of the process (pidfd_open(2); from another PID namespace, of the connection): until
// then that process owns state directory, ports and name.

// A socket of this process, and its name.
struct OwnDescriptor {
  int fd;
  std::string name;
};

// The server's end. One thread.
class HandoverSocket {
 public:
  // Listens at `path`, in place of the socket of a process before. Its mode is 0600. REQUIRES: one thread (umask(2)).
  static Result<HandoverSocket> listen(const std::string& path);

  // Readable when a successor has come, or when the one that has come asks. Another one after each give().
  int fd() const { return successor_.isOpen() ? successor_.get() : listener_.get(); }
  // Gives `all` to the successor if it asks for them; false: it does not yet. The error says why it does not get them:
  // then nothing has changed. After true this process has to end: the successor waits for that. Does not block.
  Result<bool> give(const std::vector<OwnDescriptor>& all);
  // The process that has come; 0: none, or it is in another PID namespace.
  pid_t successor() const;

 private:
  explicit HandoverSocket(FileDescriptor listener) : listener_(std::move(listener)) {}

  FileDescriptor listener_;
  FileDescriptor successor_;  // one that may ask still; open until the process ends, then
};

// The successor's end.
class Predecessor {
 public:
  // The server that listens at `path`; none: there is none. It goes on until takeOver(), or for good.
  static Result<std::optional<Predecessor>> find(const std::string& path);

  // Of its process; 0: unknown, as it is in another PID namespace.
  pid_t pid() const { return pid_; }
  // Takes its sockets, and waits for its end, for `budget` at most. Blocks.
  Result<std::vector<GivenDescriptor>> takeOver(std::chrono::milliseconds budget);

 private:
  Predecessor(FileDescriptor connection, pid_t pid);

  FileDescriptor connection_;
  pid_t pid_;
  FileDescriptor process_;  // readable once it has ended; closed: invisible
};

}  // namespace idetcd::service
