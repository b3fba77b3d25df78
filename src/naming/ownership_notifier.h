// Publishes this node's name on its machine: the identity file, for a shell to source, and the program of `on-claim`,
// which starts when the file has its values but does not wait for a slow disk (ClaimHook::Options). The completion
// thread calls; other threads write and run programs.
//
//   IDETCD_NAME='worker1.tf.local.'          the file exists and is empty while no name is owned
//   IDETCD_ID='1'
//   IDETCD_TOKEN='4711'
//   IDETCD_UUID='6c3e…'
//   IDETCD_IPV4='192.0.2.2'                  empty: none
//   IDETCD_IPV6=''
//   IDETCD_GENERATION='4712'                 of the membership (generation.h); the file follows it, within about a second
#pragma once

#include <future>

#include "base/executor.h"
#include "base/log.h"
#include "naming/counters.h"
#include "naming/ownership.h"
#include "node/claim_hook.h"
#include "node/state_directory.h"
#include "records/record_store.h"

namespace idetcd::naming {

// A node under its name.
struct NamedNode {
  std::string name;
  int64_t id = 0;
  int64_t token = 0;
  std::string uuid;
  records::HostAddresses addresses;
  int64_t revision = 0;  // of the store when it was claimed
  uint64_t cluster_id = 0;
  bool drained = false;
  int64_t generation = 0;
};

class OwnershipNotifier {
 public:
  // Of the first two either may be missing. What `files` has been given is done before the notifier goes, and `counters`
  // are there until then.
  OwnershipNotifier(std::shared_ptr<node::StateDirectory> state, std::optional<node::ClaimHook::Options> hook,
                    std::shared_ptr<Executor::Strand> files, FileCounters& counters, Logger log);

  // The files are this process's from now on (StateDirectory::take()). REQUIRES: a state directory.
  void take(bool keeps_name);
  void claimed(const NamedNode& node);
  // The same name and token, and other addresses, drained or not any more, or the claim of another store.
  void moved(const NamedNode& node);
  // The same but for the generation.
  void counted(const NamedNode& node);
  // `done` is called when the file is empty and the program has ended, or will not be run; on any thread.
  void lost(const NamedNode& node, std::function<void()> done = {});
  // The file names no owner: the name that a process before has handed over there is not this one's.
  void forget();
  // Which leases may hold keys of this node. `kept` is called when the file has it, or cannot have it; on any thread.
  void leased(uint64_t cluster_id, std::vector<int64_t> leases, std::function<void()> kept);

  // What could not be written is tried once more. To be called now and then.
  void writeAgain();
  // All that was said is in the state directory, but for what is being written.
  bool isWritten();

  // No program is started any more; what runs or waits has until then. Any thread.
  void finish(std::chrono::nanoseconds budget);
  // The process is about to end without finish(): no program is left running, and the file says nothing; or the name,
  // owned until `until`, if the process `successor` takes it over. Any thread.
  void abandon(pid_t successor, std::optional<BootClock::time_point> until);

 private:
  // What the files are to say. Of what comes while the disk is busy the last is written.
  struct Note {
    node::RememberedNode node;
    std::optional<std::string> identity;  // none: as it was
    bool clears = false;                  // a name has ended since the last note was written
    bool only_counts = true;              // nothing but the generation is new
    std::vector<std::shared_ptr<void>> released_after;
    std::promise<void> written;
    node::ClaimHook::Ready is_written = written.get_future().share();
  };

  node::ClaimHook::Ready write(std::optional<std::string> identity, std::shared_ptr<void> released_after = nullptr,
                               bool only_counts = false);
  void writeNext();
  bool report(const Result<void>& written);
  void noteSuccess();

  const std::shared_ptr<node::StateDirectory> state_;
  const std::unique_ptr<node::ClaimHook> hook_;
  const std::shared_ptr<Executor::Strand> files_;
  FileCounters& counters_;
  const Logger log_;
  node::RememberedNode known_;           // what the file is to say
  std::optional<std::string> identity_;  // and the other one; none: as it is
  std::set<std::string> failures_;       // that were said since all was written; of the thread that writes
  std::mutex mutex_;                     // guards the next four
  std::shared_ptr<Note> next_;           // to be written, if that has not begun yet
  bool writing_ = false;                 // one before it, which does not only count
  bool abandoned_ = false;               // nothing is written any more
  bool identity_failed_ = false;         // the identity file is not as it is to be
};

// The identity file of a node.
std::string renderIdentity(const NamedNode& node);

}  // namespace idetcd::naming
