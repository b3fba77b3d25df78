// A file that is only in memory, for what reads files by their path.
#pragma once

#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "fuzz/check.h"

namespace idetcd::fuzz {

class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)) { FUZZ_CHECK(fd_ >= 0); }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  void assign(std::string_view contents) const {
    FUZZ_CHECK(ftruncate(fd_, 0) == 0);
    FUZZ_CHECK(pwrite(fd_, contents.data(), contents.size(), 0) == static_cast<ssize_t>(contents.size()));
  }

 private:
  int fd_;
};

}  // namespace idetcd::fuzz
