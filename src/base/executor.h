// Threads for what may block (files, large objects to be made or freed), so that no loop does. Any thread may submit.
//
// Work submitted on one strand is done in order, one after the other; work of different strands goes on side by
// side, so that a file system that stands still holds up those strands alone that use it. Threads are made when they
// are needed, up to a maximum, and end when they have had nothing to do for a while.
#pragma once

#include <system_error>
#include <thread>

#include "base/result.h"
#include "base/std.h"

namespace idetcd {

class Executor {
 public:
  using Work = std::function<void()>;
  static constexpr size_t kMaxThreads = 32;

  class Strand;

  explicit Executor(size_t max_threads = kMaxThreads);
  ~Executor();  // finish(0)
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  std::shared_ptr<Strand> makeStrand();

  // Unordered work, which keeps its objects alive. False after finish() began or without a thread: it is not run.
  bool submit(Work work);
  // Waits for `budget` at most until all that was submitted is done; what waits for its time is dropped. False: some is
  // still under way, on threads that are left to themselves; the process has to end by _exit(), which does not wait for
  // them. Takes no work from then on. Not on a loop and not within work.
  bool finish(std::chrono::milliseconds budget);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the threads
};

// May outlive the executor; takes no work then.
class Executor::Strand : public std::enable_shared_from_this<Executor::Strand> {
 public:
  // As Executor::submit().
  bool submit(Work work);
  // Joins the queue when `delay` has passed.
  bool submitAfter(std::chrono::milliseconds delay, Work work);
  // Waits until what was submitted before is done, however long it takes. Not on a loop and not within work.
  void drain();

 private:
  friend class Executor;
  struct State;
  explicit Strand(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State> state_;
};

// An object freed on the executor, wherever its last reference ends: so large that freeing would delay a loop.
template <typename T>
std::shared_ptr<T> freedOn(const std::shared_ptr<Executor>& executor, std::unique_ptr<T> object) {
  return std::shared_ptr<T>(object.release(), [executor](T* old) {
    if (!executor->submit([old] { delete old; })) delete old;
  });
}

// Threads that are made while the process serves: the system may have none left.
template <typename Work>
Result<std::thread> startThread(Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {  // the library has no other way to say it
    return fail(std::string("there is no thread left: ") + error.what(), ErrorCode::kNoResources);
  }
}

}  // namespace idetcd
