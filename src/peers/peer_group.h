// This machine's part in the cluster that it founds or joins, for all patterns of a Corefile with these
// settings: its identity and directory, the founder, its part in the cluster's etcd, and where that is for clients.
// Any thread; nothing waits for the disk but open().
#pragma once

#include "etcd/client.h"
#include "node/state_directory.h"
#include "peers/founder.h"
#include "peers/voting.h"

namespace idetcd::peers {

// As the Corefile has them.
struct Settings {
  std::vector<std::string> where;  // see Meeting
  int64_t expect = 0;              // machines
  std::string secret_file;         // empty: none
  bool insecure = false;
  uint16_t port = 2390;  // and the next two are etcd's
  std::string program = "etcd";
  bool operator==(const Settings&) const = default;
};

// For the operator, if every user of the machine may read the secret; empty: they may not, or it is not there.
std::string warningOfSecret(const std::string& path);

// Of 1.1 leases: whatever a machine held before has ended.
std::chrono::milliseconds silenceAfter(std::chrono::seconds lease);

class PeerGroup {
 public:
  struct Options {
    Settings settings;
    std::string state;      // the directory; empty: this machine keeps nothing
    pid_t predecessor = 0;  // see node::StateDirectory::Options
    std::string runtime;    // a directory that a restart of the machine empties, used without `state`
    std::vector<IpAddress> addresses;
    // Those of today, when some of the machine have changed; blocks. Empty: they stay as they are.
    std::function<Result<std::vector<IpAddress>>()> find_addresses;
    bool observes = false;  // founds nothing, and is no voter
    std::chrono::seconds lease{20};
    std::shared_ptr<Executor> executor = std::make_shared<Executor>();
    std::shared_ptr<sandbox::ProgramRunner> programs;
    metrics::Scope metrics{};
    // On any thread, until stop() has returned: endpoints() says something else.
    std::function<void()> on_change;
    // On any thread, until stop() has returned: another cluster of this secret was met, for which this one is left. All
    // names that this machine has in it are to be given up; left() follows.
    std::function<void()> on_leave;
  };
  struct Membership {
    int64_t number = 0;  // of this machine among those that founded the cluster; 0: it was none of them
    int64_t token_base = 0;
  };
  struct Report {
    Founder::Status founder;
    std::string uuid;
    bool reaches_voters = false;
    std::string trouble;  // it cannot begin; empty: it has
  };

  // Takes the directory, or fails if another process has it; reads the secret. Changes nothing yet. `thread` outlives it.
  static Result<std::shared_ptr<PeerGroup>> open(Options options, etcd::CompletionThread& thread, Logger log);
  ~PeerGroup();  // stop(0)
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  const Settings& settings() const;
  // The first call counts. `token`: the highest fencing token that this machine has seen.
  void start(int64_t token);
  // Hands over, if it is a voter, and ends its etcd, within `budget`. Nothing is called back any more when it returns.
  void stop(std::chrono::milliseconds budget);

  // After on_leave: no name is held any more, `patience` from now on at the latest; what the next one is to have has a
  // higher token than `token`.
  void left(std::chrono::milliseconds patience, int64_t token);

  // None: it is not decided yet.
  std::optional<Membership> membership() const;
  // Of the cluster's etcd, as last known; empty: it is not yet.
  std::vector<std::string> endpoints() const;
  // For clients of these, which need not be there yet.
  std::optional<etcd::TlsFiles> tls() const;

  Report report() const;
  // Asks the voters, for so long at most; none: this machine is no member yet. Blocks.
  std::optional<Voting::Status> askVoters(std::chrono::milliseconds patience) const;
  // See Voting. Blocks.
  Result<void> recover();

 private:
  struct Impl;
  explicit PeerGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl> impl_;  // shared with what waits for the disk
};

}  // namespace idetcd::peers
