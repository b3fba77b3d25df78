// Owns a file descriptor, and closes it. One thread.
#pragma once

#include <unistd.h>

#include "base/std.h"

namespace idetcd {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}  // negative: none, as open(2) returns it
  ~FileDescriptor() {
    if (isOpen()) ::close(fd_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  bool isOpen() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // The caller's from now on.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace idetcd
