// One libuv loop and the handles on it. Everything here belongs to the loop's thread but EventLoop::post() and stop().
//
// A handle's object may be destroyed at any time on the loop's thread, in its own callback too; the callback is not
// called again. Every handle must be gone before its loop is.
#pragma once

#include "base/result.h"

namespace idetcd::net {

class EventLoop {
 public:
  EventLoop();  // for the start of a process: throws std::runtime_error if there is no descriptor left
  static Result<std::unique_ptr<EventLoop>> make();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs until stop(). Work posted before it is not lost.
  void run();
  void stop();                            // any thread
  void post(std::function<void()> work);  // any thread; runs on the loop's thread, in order
  // Whether the caller may touch the handles: the thread in run(), before it the one that made the loop. Any thread.
  bool isLoopThread() const;

  struct Impl;
  Impl& impl() { return *impl_; }  // for net/*.cc only

 private:
  explicit EventLoop(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Timer {
 public:
  Timer(EventLoop& loop, std::function<void()> on_expiry);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Starts it anew. `repeat` zero: once.
  void start(std::chrono::milliseconds timeout, std::chrono::milliseconds repeat = std::chrono::milliseconds(0));
  void stop();

 private:
  struct Impl;
  Impl* impl_;
};

// Calls back while `fd` is readable or has an error to be read (level-triggered). The descriptor stays the caller's and
// must outlive the watcher. Where the kernel has no room for it, it begins when there is some.
class ReadWatcher {
 public:
  ReadWatcher(EventLoop& loop, int fd, std::function<void()> on_readable);
  ~ReadWatcher();
  ReadWatcher(const ReadWatcher&) = delete;
  ReadWatcher& operator=(const ReadWatcher&) = delete;

 private:
  void begin();

  struct Impl;
  EventLoop& loop_;
  const int fd_;
  std::function<void()> on_readable_;  // until it is watched
  Impl* impl_ = nullptr;               // null: not yet
  std::unique_ptr<Timer> retry_;
};

// Calls back before each wait of the loop, when all work of the last events and timers is done.
class BeforeWait {
 public:
  BeforeWait(EventLoop& loop, std::function<void()> callback);
  ~BeforeWait();
  BeforeWait(const BeforeWait&) = delete;
  BeforeWait& operator=(const BeforeWait&) = delete;

 private:
  struct Impl;
  Impl* impl_;
};

// For the start of a process: throws std::runtime_error where there is no descriptor left.
class SignalWatcher {
 public:
  SignalWatcher(EventLoop& loop, int signal, std::function<void()> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace idetcd::net
