// `check`: looks at this machine at intervals, by a program, a TCP port or an HTTP URL. Each check has a thread of its own,
// which sleeps in between, so that one that hangs holds up no other.
//
// A check fails after `fails` attempts in a row that do not pass, and passes after `passes` that do; its first attempt of
// all decides alone. The machine is well while no check fails.
#pragma once

#include <thread>

#include "base/file_descriptor.h"
#include "base/ip_address.h"
#include "base/log.h"
#include "base/result.h"
#include "sandbox/program_runner.h"

namespace idetcd::node {

struct Check {
  // A program, which is well if it ends with status 0; else a port that takes a connection; else a URL of it that is
  // answered with 200 to 399.
  std::vector<std::string> command{};
  SocketAddress address{};
  std::string host{};  // of the URL, as in `Host:`; empty: only the port
  std::string path{};
  bool operator==(const Check&) const = default;

  // `COMMAND [ARGUMENT...]`, `tcp [ADDRESS:]PORT` or `http http://ADDRESS[:PORT][/PATH]`, where ADDRESS is an IP address
  // or localhost, so that no name has to be resolved.
  static Result<Check> parse(const std::vector<std::string>& words);
  std::string name() const;  // for people
};

struct CheckTimes {
  std::chrono::milliseconds interval{10'000};  // between the begins of two attempts
  std::chrono::milliseconds timeout{5000};     // of an attempt
  int fails = 3;
  int passes = 1;
  bool operator==(const CheckTimes&) const = default;
};

// What the attempts of one check come to. Pure.
class CheckVerdict {
 public:
  explicit CheckVerdict(const CheckTimes& times) : times_(times) {}

  void add(bool passed);
  bool fails() const { return fails_; }

 private:
  const CheckTimes times_;
  bool is_first_ = true;
  bool fails_ = false;
  int differing_ = 0;  // attempts in a row that say the other
};

class HealthChecks {
 public:
  // `on_change` is called with why the machine is sick, on any thread, one call at a time, whenever that changes; empty:
  // it is well, as it counts at first. REQUIRES: `runner`, if there is a program.
  HealthChecks(std::vector<Check> checks, const CheckTimes& times, std::shared_ptr<sandbox::ProgramRunner> runner,
               std::function<void(std::string)> on_change, Logger log);
  // Programs that run are killed; on_change is not called any more.
  ~HealthChecks();
  HealthChecks(const HealthChecks&) = delete;
  HealthChecks& operator=(const HealthChecks&) = delete;

 private:
  void run(size_t index);
  void take(size_t index, const Result<void>& outcome);
  bool sleepUntil(std::chrono::steady_clock::time_point time) const;

  const std::vector<Check> checks_;
  const CheckTimes times_;
  const std::shared_ptr<sandbox::ProgramRunner> runner_;
  const std::function<void(std::string)> on_change_;
  const Logger log_;
  FileDescriptor stop_;  // readable from the end on

  std::mutex mutex_;  // guards what follows
  std::vector<CheckVerdict> verdicts_;
  std::vector<std::string> reasons_;  // why the last attempt did not pass
  std::string sick_;                  // as told

  std::vector<std::thread> threads_;
};

// One attempt; the error is why it did not pass. Blocks up to `timeout`, or until `stop` is readable. `killed`: a program of
// an attempt before, which did not end although it was killed: as long as that is so, no other one is started. Any thread.
Result<void> attempt(const Check& check, std::chrono::milliseconds timeout, const sandbox::ProgramRunner* runner,
                     const FileDescriptor& stop, std::optional<sandbox::RunningProgram>& killed);

}  // namespace idetcd::node
