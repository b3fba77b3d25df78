// Hands a server's sockets to its successor without a service manager: over a Unix socket (SCM_RIGHTS), one user.
//
//   successor ── connects ───────────────────────────► server
//             ◄── one message a socket: its name, and the descriptor; then kEnd ──
//             ◄── end of the connection, when the process has ended ──
//
// The successor waits for the end of the process (pidfd_open(2); from another PID namespace, of the connection): until
// then that process owns state directory, ports and name.
#pragma once

#include "base/file_descriptor.h"
#include "base/result.h"
#include "service/given.h"

namespace idetcd::service {

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

  // Readable when a successor has come.
  int fd() const { return listener_.get(); }
  // Gives `all` to the successor that has come. The error says why it has not got them: then nothing has changed.
  // Afterwards this process has to end: the successor waits for that. Does not block.
  Result<void> give(const std::vector<OwnDescriptor>& all);

 private:
  explicit HandoverSocket(FileDescriptor listener) : listener_(std::move(listener)) {}

  FileDescriptor listener_;
  FileDescriptor successor_;  // open until the process ends
};

// The successor's end. Takes over from the server that listens at `path`, and waits for its end, for `budget` at most.
// Empty if there is none. Blocks.
Result<std::vector<GivenDescriptor>> takeOver(const std::string& path, std::chrono::milliseconds budget);

}  // namespace idetcd::service
