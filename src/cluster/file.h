// Whole files: read at once, or replaced at once, so that nobody ever reads half of one. Blocking; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace idetcd::cluster {

// A file that is written beside the one it replaces, and takes its place with commit(): after a crash at any moment
// there is the old one or the new one. Dropped without commit(), it leaves nothing.
class FileReplacement {
 public:
  static Result<FileReplacement> begin(std::string path);
  ~FileReplacement();
  FileReplacement(FileReplacement&& other) noexcept;
  FileReplacement& operator=(FileReplacement&&) = delete;

  Result<void> append(std::string_view bytes);
  Result<void> commit();  // fsync, rename, fsync of the directory

 private:
  FileReplacement(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

  std::string path_;
  std::string temporary_;
  int fd_;
};

Result<void> replaceFile(const std::string& path, std::string_view contents);

// None: there is no such file. A file of more than `max_bytes` is an error, and is not read.
Result<std::optional<std::string>> readFile(const std::string& path, size_t max_bytes);

}  // namespace idetcd::cluster
