// `on-claim COMMAND [ARG…]`: runs a program when this node gets a name and when it loses it, by the helper of
// sandbox/program_runner.h, one at a time in the order of events. Beyond its time it is killed with its process group; one
// that does not end for all that (it waits for a disk, or the helper is stopped) is left alone, and may end beside the
// next one. An exit status other than 0 is logged. Every claim that is run is followed by its loss; a claim whose loss comes
// before its turn is left out, with that loss, so at most two events wait. IDETCD_EVENT is `claim` or `loss`;
// IDETCD_SEQUENCE numbers all events of this object from 1.
#pragma once

#include <condition_variable>
#include <future>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "sandbox/program_runner.h"

namespace idetcd::node {

class ClaimHook {
 public:
  struct Options {
    std::vector<std::string> command;                // looked for in PATH. REQUIRES: not empty
    std::shared_ptr<sandbox::ProgramRunner> runner;  // REQUIRES: not null
    std::chrono::milliseconds time_limit{30'000};
    std::chrono::milliseconds ready_timeout{200};  // for what is to come before a program (`ready`)
  };
  using Variables = sandbox::ProgramRunner::Variables;
  using Ready = std::shared_future<void>;
  static constexpr std::chrono::milliseconds kKillPatience{1000};

  ClaimHook(Options options, Logger log);
  ~ClaimHook();  // finish(0)
  ClaimHook(const ClaimHook&) = delete;
  ClaimHook& operator=(const ClaimHook&) = delete;

  // Strictly in turn; each returns at once. The program starts when `ready` is, or without it (a disk may take for
  // ever) after `ready_timeout`. One thread. After finish() began nothing is run any more. `held` is let go when the
  // program has ended, or will not be run.
  void claimed(Variables variables, Ready ready = {});
  void lost(Variables variables, Ready ready = {}, std::shared_ptr<void> held = nullptr);
  // Lets what is under way and what waits run for at most `budget`, then kills. Nothing of it is left behind, but for a
  // program that cannot be killed: for its end kKillPatience is waited, besides.
  void finish(std::chrono::nanoseconds budget);
  // For an end without finish(): kills what runs, runs nothing more. Waits for nothing. Any thread.
  void abandon();

 private:
  struct Event {
    bool is_claim = false;
    Variables variables;
    Ready ready;
    std::shared_ptr<void> held;
  };

  void add(Event event);
  void startLoop();
  void loop();
  void runOne(const Variables& variables);
  std::shared_ptr<sandbox::RunningProgram> start(const Variables& variables);
  bool waitForEnd(const sandbox::RunningProgram& program);
  void killAndWait(const sandbox::RunningProgram& program) const;
  void report(const Result<int>& status) const;
  // When the program that was started at `started` has to be gone.
  BootClock::time_point limitOf(BootClock::time_point started);

  const Options options_;
  const Logger log_;
  int wake_fd_ = -1;  // readable once finish() has set the end

  std::mutex mutex_;  // guards the four below, and the start of the thread
  std::condition_variable changed_;
  std::deque<Event> waiting_;  // at most two
  uint64_t sequence_ = 0;
  std::optional<BootClock::time_point> end_;  // finish() was called

  std::mutex running_mutex_;                          // guards the two below
  std::shared_ptr<sandbox::RunningProgram> running_;  // null: nothing runs
  bool abandoned_ = false;

  std::thread thread_;  // from the first event on
};

}  // namespace idetcd::node
