// etcd as a program of ours: run by the helper process (sandbox/program_runner.h), run again when it ends, killed with
// the server.
//
// It is ended by SIGKILL: what etcd has answered is in its log on the disk, so no write is lost. What may be lost is how
// far that log is committed, which etcd writes with the next entry or at an orderly end. Any thread.
#pragma once

#include <condition_variable>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/ip_address.h"
#include "sandbox/program_runner.h"

namespace idetcd::peers {

// Whether a server at `address` does more than listen: it answers what it does not understand, or closes the connection.
// Blocks, for `patience` at most.
bool isServed(const SocketAddress& address, std::chrono::milliseconds patience);

// Those of the addresses at which nobody takes a connection. Blocks, for `patience` at most.
std::set<SocketAddress> unservedOf(const std::vector<SocketAddress>& addresses, std::chrono::milliseconds patience);

class EtcdChild {
 public:
  // After an end it is run again after this, doubled for each end within kSteady of its start.
  static constexpr std::chrono::milliseconds kFirstPause{200};
  static constexpr std::chrono::milliseconds kLastPause{30'000};
  static constexpr std::chrono::seconds kSteady{10};

  struct Options {
    std::shared_ptr<sandbox::ProgramRunner> programs;
    std::string name;                       // for messages
    std::vector<std::string> command;       // the first word is looked for in PATH
    std::vector<std::string> first_only{};  // more arguments, for the first start alone
  };

  explicit EtcdChild(Options options);
  ~EtcdChild();  // stop()
  EtcdChild(const EtcdChild&) = delete;
  EtcdChild& operator=(const EtcdChild&) = delete;

  // kNoResources: there is no thread. Once.
  Result<void> start();
  // Has the program ended by SIGTERM if there is patience, for so long at most, then killed. Waits until it has ended, for
  // a second at most after that. A later call may only shorten the patience that is left.
  void stop(std::chrono::milliseconds patience = {});

  // Why it does not run, or has not stayed; empty: it runs, for kSteady at least or for the first time.
  std::string problem() const;
  uint64_t starts() const { return starts_.load(std::memory_order_relaxed); }  // only counts

 private:
  void run();
  void end(const sandbox::RunningProgram& program);
  std::chrono::milliseconds patience() const;
  // False: stop() came.
  bool pause(std::chrono::milliseconds pause);
  std::string runOnce();  // how it ended

  const Options options_;
  std::atomic<uint64_t> starts_{0};
  const FileDescriptor wake_;  // readable once stop() has been called
  mutable std::mutex mutex_;   // guards the next six
  std::condition_variable changed_;
  bool stopping_ = false;
  std::chrono::milliseconds patience_{};  // see stop()
  std::string problem_;
  BootClock::time_point started_;
  bool runs_ = false;
  std::thread thread_;
  std::once_flag joined_;
};

}  // namespace idetcd::peers
