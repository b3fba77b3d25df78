// A file that is looked at now and then, and read again when it has changed: on the executor, so that no loop waits for
// it. What reads the file gives its content to as many loops as there are.
#pragma once

#include "base/executor.h"
#include "base/result.h"
#include "base/watched_file.h"

namespace idetcd {

class FileWatch {
 public:
  // What WatchedFile::readIfChanged() returned. On a thread of the executor, one call after the other.
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
