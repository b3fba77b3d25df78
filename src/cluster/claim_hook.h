// `on-claim COMMAND [ARG…]`: runs a program when this node gets its name and when it ceases to own it.
//
// One at a time, in the order of the events, on a thread of its own: nobody ever waits for it. A program that does not
// end in time is killed, with what it started (its process group). Its exit status, if not 0, is logged. It has the
// server's environment with IDETCD_… added, its standard output and error, and no other open file.
//
// Every claim that is run is followed by its own loss. If events come faster than programs end, a claim that has not
// been run when its loss comes is left out, and so is that loss. So at most two wait: the loss of the claim that was
// run, and the claim that holds now. IDETCD_EVENT says `claim` or `loss`; IDETCD_SEQUENCE numbers the events of this
// object from 1, those that are left out too.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"

namespace idetcd::cluster {

class ClaimHook {
 public:
  struct Options {
    std::vector<std::string> command;  // looked for in PATH. REQUIRES: not empty
    std::chrono::milliseconds time_limit{30'000};
    std::chrono::milliseconds patience{200};  // with what is to come before a program (`ready`)
  };
  using Variables = std::vector<std::pair<std::string, std::string>>;
  using Ready = std::shared_future<void>;

  ClaimHook(Options options, Logger log);
  ~ClaimHook();  // finish(0)
  ClaimHook(const ClaimHook&) = delete;
  ClaimHook& operator=(const ClaimHook&) = delete;

  // Strictly in turn; each returns at once. The program starts when `ready` is, or without it (a disk may take for
  // ever) after `patience`. One thread. After finish() began nothing is run any more.
  void claimed(Variables variables, Ready ready = {});
  void lost(Variables variables, Ready ready = {});
  // Lets what is under way and what waits run for at most `budget`, then kills. Nothing of it is left behind.
  void finish(std::chrono::nanoseconds budget);
  // The process is about to end without finish(): kills what runs, and nothing is run any more. Waits for nothing but a
  // start that is under way. Any thread.
  void abandon();

 private:
  struct Event {
    bool is_claim = false;
    Variables variables;
    Ready ready;
  };

  void add(bool is_claim, Variables variables, Ready ready);
  void loop();
  void runOne(const Variables& variables);
  pid_t start(const Variables& variables);
  pid_t spawn(const Variables& variables);
  bool waitForEnd(pid_t pid, int pidfd);
  void reap(pid_t pid);
  // When the program that was started at `started` has to be gone.
  BootClock::time_point limitOf(BootClock::time_point started);

  const Options options_;
  const Logger log_;
  int wake_fd_ = -1;  // readable once finish() has set the end

  std::mutex mutex_;  // guards the four below
  std::condition_variable changed_;
  std::deque<Event> waiting_;  // at most two
  uint64_t sequence_ = 0;
  std::optional<BootClock::time_point> end_;  // finish() was called

  std::mutex running_mutex_;  // guards the two below; held while a program starts
  pid_t running_ = 0;         // whose process group abandon() is to kill; 0: nothing runs
  bool abandoned_ = false;

  std::thread thread_;
};

}  // namespace idetcd::cluster
