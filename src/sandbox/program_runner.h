// Runs programs for a server that may start none: a helper, forked before confinement and before any secret is read,
// starts them. It has the capabilities of the confined server and runs only what the Corefile names.
//
//   server ── SOCK_SEQPACKET: one request a program, with a channel of its own ──► helper ── fork, exec ──► program
//          ◄── the program's channel: one report, when the program has ended ────
//
// A program has the helper's environment without IDETCD_*, the request's variables, an empty standard input, the
// server's output and error, and no other file. It leads a process group. When the server ends, in whatever way, the
// helper kills these groups and ends. It blocks all signals; if it is killed itself, the kernel kills the programs.
#pragma once

#include <sys/types.h>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "sandbox/confinement.h"

namespace idetcd::sandbox {

// One that runs, or has ended. Killed when this object goes, unless it has ended by then; nothing waits for that.
class RunningProgram {
 public:
  explicit RunningProgram(FileDescriptor channel) : channel_(std::move(channel)) {}

  // Readable once the program has ended, or never began.
  int descriptor() const { return channel_.get(); }
  // Both with its process group, at once, on any thread, beside wait() too.
  void terminate() const;  // SIGTERM: it may end in order
  void kill() const;
  // Waits for the end: a status as of waitpid(2), or why the program never ran, or that the helper is gone.
  Result<int> wait() const;

 private:
  FileDescriptor channel_;
};

class ProgramRunner {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;  // without NUL, as are arguments
  static constexpr size_t kMaxRequestBytes = 64 << 10;

  // Forks the helper. `mode` is that of limitRights(); kOff: the helper, too, keeps the rights that the process has.
  // REQUIRES: the process has one thread.
  static Result<std::unique_ptr<ProgramRunner>> make(Mode mode);
  // Kills what runs, and waits a second at most for the helper to end.
  ~ProgramRunner();
  ProgramRunner(const ProgramRunner&) = delete;
  ProgramRunner& operator=(const ProgramRunner&) = delete;

  // Has `command` run, whose first word is looked for in PATH. Waits for nothing; whether it could be run is reported
  // by RunningProgram::wait(). Any thread. `output`: of the program, in place of the server's; none if it is not open.
  // `is_silent`: what it prints elsewhere goes nowhere.
  // REQUIRES: `command` is not empty.
  Result<RunningProgram> start(const std::vector<std::string>& command, const Variables& variables,
                               const FileDescriptor& output = {}, bool is_silent = false) const;

  pid_t helper() const { return helper_; }

 private:
  ProgramRunner(FileDescriptor channel, pid_t helper) : channel_(std::move(channel)), helper_(helper) {}

  FileDescriptor channel_;
  const pid_t helper_;
};

}  // namespace idetcd::sandbox
