// The files of one pattern in the directory `state DIR`. Their names begin with the pattern, made fit for a file name:
//
//   worker-ID.tf.local-8d3c2a71.json    the node's UUID, its last name, the claim of it, and its leases
//   worker-ID.tf.local-8d3c2a71.env     the name while it is owned, for a shell to source; empty otherwise
//   worker-ID.tf.local-8d3c2a71.names   every name as last known (saved_names.h)
//   worker-ID.tf.local-8d3c2a71.lock    held while a process uses the three
//   identity                            link to the .env, if there is one pattern only
//
// open() changes none of them but makes the lock, which goes again if nothing is written: a configuration that is
// refused leaves nothing. A second process on the same files is refused. A state with another machine-id (a copied
// image), or one that cannot be read, makes a new node. Its writer has certainly ended only if it held the very lock
// that we hold: device and inode of the lock file and the boot ID agree (a machine-id may be copied; containers share a
// boot). A server that makes way for another one, which takes the name back, leaves it in the .env meanwhile: handOver().
// Blocking; one thread at a time.
#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"

namespace idetcd::node {

// The kept state of a node.
struct RememberedNode {
  std::string uuid;
  std::string name;  // the last one that it owned; empty: none yet
  int64_t id = 0;
  // The claim of that name; 0: not known.
  int64_t token = 0;
  uint64_t cluster_id = 0;  // of the store that the next two are of: in another one they mean nothing
  int64_t revision = 0;     // of the store when it was made
  // All that may live and hold keys of this node, the newest last: the claim's, and those of claims that were begun.
  std::vector<int64_t> leases = {};
  bool drained = false;  // an operator has taken its addresses out of DNS
  bool operator==(const RememberedNode&) const = default;
};

class StateDirectory {
 public:
  struct Options {
    std::string directory;  // made if it is not there
    std::string pattern;    // as configured
    std::string machine_id_file = "/etc/machine-id";
    std::string boot_id_file = "/proc/sys/kernel/random/boot_id";
    pid_t predecessor = 0;  // may have the lock: for an open() that only tries, in a child of the process that goes on
    bool takes_name = true;  // the name that a predecessor hands over; else it hands over none
  };

  // The error is for the operator: the directory cannot be used, or is in use.
  static Result<std::shared_ptr<StateDirectory>> open(Options options, Logger log);
  // What is remembered there, for who only looks: changes nothing, also while a process has the files. Without UUID:
  // nothing is, or it was written on another machine. An error: it cannot be read, and open() makes a new node.
  static Result<RememberedNode> look(Options options);
  ~StateDirectory();  // release()
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  // The files are this process's from now on, which owns no name yet: what a crashed one has left in the .env goes,
  // and in those of patterns that no process has in use. `keeps_name`: what handedOver() is about stays.
  Result<void> take(bool keeps_name = false);
  // Empties the .env of every pattern that no process has in use.
  static void emptyAbandoned(const std::string& directory);
  // `only`: no other pattern uses the directory, and `identity` leads to this one's .env. It is undefined which of
  // several it would lead to, so there is none then.
  void linkIdentity(bool only) const;

  // As last remembered; with a new UUID if there was nothing.
  const RememberedNode& node() const { return node_; }
  // Whether the file says that; false: remember() has failed, or is still to be called. Any thread.
  bool isSaved() const { return is_saved_.load(std::memory_order_relaxed); }
  // Whether the process that remembered what open() has read has ended for certain.
  bool predecessorEnded() const { return predecessor_ended_; }
  Result<void> remember(const RememberedNode& node);

  // The new content of the .env; empty: the node owns no name. Emptying works on a full disk too.
  Result<void> writeIdentity(std::string_view contents);
  // Empties it in place, before an immediate end. Nothing after release(). Any thread, beside any other call.
  void clearIdentity() const;
  // In place of that, before an end that makes way for the process `successor`: it finds the name in the .env, which is
  // owned until `until`. False: that process does not go on with these files. Any thread, beside any other call.
  bool handOver(pid_t successor, BootClock::time_point until) const;
  // Until when the name is owned that a predecessor has handed over to this process in the .env; none: it has not. It is
  // for whoever calls take() to empty it then.
  std::optional<BootClock::time_point> handedOver() const { return handed_over_; }

  std::string namesFile() const { return stem_ + ".names"; }
  std::string identityFile() const { return stem_ + ".env"; }
  // Another process, or another StateDirectory of this one, may use the files from now on; this one must not.
  void release();

 private:
  StateDirectory(Options options, Logger log);
  static constexpr std::chrono::seconds kSlowWrite{1};

  void noteWrite(std::chrono::steady_clock::time_point begin);
  Result<void> replace(const std::string& path, std::string_view contents, mode_t mode);
  Result<void> lock();
  Result<RememberedNode> read();
  std::string machine() const;
  std::string holder() const;

  const Options options_;
  const Logger log_;
  const std::string stem_;        // with the directory
  std::atomic<int> lock_fd_{-1};  // relaxed: clearIdentity() only asks whether the file is still ours
  RememberedNode node_;
  std::atomic<bool> is_saved_{false};  // relaxed: whoever reads it looks again later
  bool lock_is_new_ = false;
  bool written_ = false;  // by this object
  bool predecessor_ended_ = false;
  std::optional<BootClock::time_point> handed_over_;
  bool taken_ = false;
  bool is_slow_ = false;  // as was said
};

// The directory that systemd has made for the service (the first of systemd.exec(5)'s list); empty: nothing.
std::string stateDirectoryOfService();

// The part of the file names that stands for the pattern.
std::string fileStem(std::string_view pattern);

}  // namespace idetcd::node
