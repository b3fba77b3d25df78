// The Unix socket at which this process is controlled: a file DIRECTORY/PORT.sock with mode 0660, which belongs to the
// user and the group of the process.
#pragma once

#include <sys/types.h>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace idetcd::control {

// The directory of such sockets: the first of systemd's RUNTIME_DIRECTORY, else /run/idetcd.
std::string socketDirectory();

class LocalSocket {
 public:
  // Binds the socket, and makes the directory if it is not there. What a process that has ended has left is replaced,
  // in one step: a client finds the old file or the new one. An error if a process listens there. REQUIRES: one thread
  // (umask(2)).
  static Result<LocalSocket> bind(const std::string& directory, uint16_t port);

  LocalSocket(LocalSocket&& other) noexcept;
  LocalSocket& operator=(LocalSocket&&) = delete;
  ~LocalSocket() { remove(); }

  // The bound socket. Once.
  FileDescriptor take() { return std::move(socket_); }
  const std::string& path() const { return path_; }
  // Removes the file, if it is still the one that bind() has made.
  void remove();

 private:
  LocalSocket() = default;

  FileDescriptor socket_;
  std::string path_;  // empty: there is no file of ours
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace idetcd::control
