// This machine's part in the cluster's etcd: it publishes itself, follows who votes, runs an etcd when it is to, and, if
// that etcd leads, changes the members (membership.h). README.md has the rules.
//
//   DIRECTORY/CLUSTER/etcd/NAME  the data of the child; NAME is "founding", or the ID with which it was added
//   DIRECTORY/CLUSTER/etcd.removed  what is left of data that is being deleted
//   DIRECTORY/CLUSTER/started    exists from the founding start on: this machine never founds again, even if its data is
//                                lost
//   DIRECTORY/tls                certificates.h
//   DIRECTORY/etcd.log           the child's warnings, of bounded size
//
// It runs on the CompletionThread; what blocks, on the executor. Nothing here is needed to answer a query.
#pragma once

#include <future>

#include "base/executor.h"
#include "base/log.h"
#include "base/metrics.h"
#include "etcd/completion_thread.h"
#include "founding/envelope.h"
#include "founding/message.h"
#include "peers/membership.h"
#include "sandbox/program_runner.h"

namespace idetcd::peers {

// Beside the peers port P: etcd's clients at P + 1, its members among themselves at P + 2.
std::string clientEndpoint(const SocketAddress& peers_address, bool tls);

// Whether it can be run: a path, or a name that is searched in $PATH.
bool isProgram(const std::string& program);

class Voting {
 public:
  enum class Role : uint8_t { kUnknown, kStandsBy, kStarts, kLearns, kVotes };

  struct Options {
    founding::Value cluster;
    std::vector<founding::Voter> voters;  // as last known; empty: those of the founding
    std::string uuid;
    SocketAddress address;  // of the peers port
    int64_t start = 0;      // of this process, ns
    bool durable = false;   // the directory outlives the process
    bool promised = true;   // something, at the founding, as each founder has; false: it has forgotten that
    std::string directory;
    std::optional<founding::Secret> secret;  // none: plain HTTP
    std::shared_ptr<sandbox::ProgramRunner> programs;
    std::string program = "etcd";
    int64_t quota_bytes = int64_t{512} << 20;  // of etcd's data
    // After the voters were lost: whatever a machine held then has ended.
    std::chrono::milliseconds leases_end{22'100};
    std::chrono::seconds first_patience{3};  // when the cluster is founded: for the etcd that has to start first
    metrics::Scope metrics{};
    std::shared_ptr<Executor> executor = std::make_shared<Executor>();
    // On the CompletionThread, not after stop(). First when one of the voters has answered, or none for 5 s: until then
    // nobody else need ask them. The voters are those that serve.
    std::function<void(std::vector<founding::Voter>)> on_voters;
    // Whether the voters are reached, first when that is known; no: they have been out of reach for 5 s.
    std::function<void(bool)> on_reach;
  };

  struct VoterStatus {
    Voter voter;
    bool answers = false;
    bool leads = false;
    bool in_memory = false;  // its machine says that it keeps nothing
    std::string version;     // of etcd; empty: it does not answer
  };
  struct Status {
    Role role = Role::kUnknown;
    std::vector<VoterStatus> voters;
    std::vector<Machine> machines;  // all that live
    std::string going_on;           // by the leader, or by the change that is published; empty: nothing
    std::string problem;            // of this machine: why it cannot do its part
  };

  // `thread` outlives this and the work on the executor, and is stopped after stop() has returned.
  // REQUIRES: `programs`, `uuid` and `directory` are set.
  Voting(etcd::CompletionThread& thread, Options options, const Logger& log);
  ~Voting();  // stop(1 s)
  Voting(const Voting&) = delete;
  Voting& operator=(const Voting&) = delete;

  // --- any thread but the CompletionThread ---
  void start();
  // Hands over if this machine leads, takes back its key, ends the child. Whoever is back within kSilence still votes.
  // No callback comes afterwards. False: it takes longer, and goes on; may be called again. Also false if `thread` has
  // stopped before: then nothing of this is done.
  bool stop(std::chrono::milliseconds budget);
  // Asks all voters; waits so long for them at most: who has not answered then is away. If `thread` stands still for a
  // second more, or has stopped, only `problem` is set, and the role is not known.
  Status status(std::chrono::milliseconds patience) const;
  // While the voters are out of reach: those that other machines tell of.
  void learn(std::vector<founding::Voter> voters);
  // A majority of voters is lost for ever: this machine alone goes on with the data that it has, and the data of the
  // others is void. What they had and this machine has not is lost. None of them may come back with its data: a
  // majority of them would be the cluster of before.
  // Fails unless this machine has data, has voted, and has not reached the voters for `leases_end`: a name that only the
  // lost ones knew is not given again before its owner has given it up. Fails, too, while another recovery is under way,
  // and when the server ends.
  std::future<Result<void>> recover();

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;  // shared with the Tasks
};

}  // namespace idetcd::peers
