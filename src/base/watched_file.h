// A file that is read again when it has changed. One thread; blocks on the file system, so not on a loop once it runs.
#pragma once

#include "base/file.h"
#include "base/result.h"

namespace idetcd {

class WatchedFile {
 public:
  static constexpr size_t kMaxSize = size_t{64} << 20;

  explicit WatchedFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // Whether readIfChanged() would look into the file: it is another one than was read, or it may be.
  bool mayHaveChanged() const;
  // The content if it has changed since the last call; else nullopt. Fails if unreadable or larger than kMaxSize.
  Result<std::optional<std::string>> readIfChanged();

 private:
  std::string path_;
  std::optional<FileStamp> stamp_;  // of what was read last
  bool settled_ = false;            // old enough then for a later write to show in the stamp
  uint64_t content_hash_ = 0;
};

}  // namespace idetcd
