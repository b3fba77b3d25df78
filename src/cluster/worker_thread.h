// A thread for what may block (files, programs), so that the completion thread does not: it runs what it is given, one
// after the other. Any thread may post.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace idetcd::cluster {

class WorkerThread {
 public:
  WorkerThread();
  ~WorkerThread();  // finish()
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  // After finish() began: false, `work` is not run.
  bool post(std::function<void()> work);
  // Runs what was posted, and ends. Idempotent; not on the thread itself.
  void finish();

 private:
  void run();

  std::mutex mutex_;  // guards the three below
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool finishing_ = false;
  std::once_flag joined_;
  std::thread thread_;
};

}  // namespace idetcd::cluster
