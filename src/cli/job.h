// A program as a child of this process, in a process group of its own, which has the terminal if there is one. It ends
// with this process. What it starts, and leaves behind, becomes this process's child. One thread; one job at a time.
#pragma once

#include "base/result.h"

namespace idetcd::cli {

// As execvp(3) wants them; points into `words`.
std::vector<char*> argumentsOf(std::vector<std::string>& words);

class Job {
 public:
  // Takes over SIGCHLD, and the signals that are passed on: HUP, INT, QUIT, TERM, USR1, USR2. They are blocked until this
  // goes.
  Job();
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // The error is an errno: of what execvp(2) has refused, above all. REQUIRES: !runs(). `words`: not empty.
  tl::expected<void, int> start(const std::vector<std::string>& words);
  bool runs() const { return pid_ > 0; }
  // To the program alone.
  void signal(int number) const;

  // Passes signals on, and reaps children, for this time, or until the program ends, or until asked() if none runs. The
  // program's exit code, if it has ended: 128 and more is the number of the signal that has ended it.
  std::optional<int> wait(std::chrono::milliseconds time);
  // TERM, and KILL after kGrace, to the program and all that it has started. Returns when these have ended, kGrace after
  // that at the latest: what waits for a disk may still run.
  void end();
  // INT or TERM that has come to this process since end() began; 0: none.
  int asked() const { return asked_; }

  static constexpr std::chrono::seconds kGrace{10};

 private:
  void takeSignals(std::chrono::milliseconds time);
  void reap();
  void noteEnd(int code);
  void stopToo();
  std::vector<pid_t> descendants() const;

  const bool has_terminal_;    // this process's group was in its foreground: the program's is, while it runs
  std::vector<pid_t> others_;  // children that were there before
  int signals_ = -1;
  pid_t pid_ = 0;  // also the group's; 0: none runs
  std::optional<int> code_;
  int asked_ = 0;
};

}  // namespace idetcd::cli
