// A file that is looked at now and then, and read again when it has changed: on the executor, so that no loop waits for
// it. What reads the file gives its content to as many loops as there are.
#pragma once

#include "base/executor.h"
#include "base/file.h"
#include "base/result.h"

namespace idetcd {

// A file that is read again when it has changed. One thread; blocks on the file system, so not on a loop once it runs.
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

class FileWatch {
 public:
  // Gets the result of WatchedFile::readIfChanged(). On a thread of the executor, one call after the other.
  using OnRead = std::function<void(Result<std::optional<std::string>>)>;

  struct Options {
    std::chrono::milliseconds interval{1000};
    // A writer truncates a file first and fills it then. A change is read this long after it was noticed.
    std::chrono::milliseconds settle_time{20};
  };

  // Goes on from what `file` has read.
  FileWatch(Executor& executor, WatchedFile file, Options options, OnRead on_read);
  // Does not wait: a running `on_read` keeps its objects alive; it is not called anew, and destroyed here or there.
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace idetcd
