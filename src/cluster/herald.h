// Tells the machine what this node's name is: by the identity file, which a shell can source, and by the program of
// `on-claim`. The completion thread speaks; files are written and programs run on other threads. A program starts when
// the file says what it is told; but it does not wait for a disk that is slow or stands still (ClaimHook::Options).
//
//   IDETCD_NAME='worker1.tf.local.'          the file exists and is empty while no name is owned
//   IDETCD_ID='1'
//   IDETCD_TOKEN='4711'
//   IDETCD_UUID='6c3e…'
//   IDETCD_IPV4='192.0.2.2'                  empty: none
//   IDETCD_IPV6=''
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/log.h"
#include "cluster/claim_hook.h"
#include "cluster/ownership.h"
#include "cluster/state_directory.h"
#include "cluster/worker_thread.h"
#include "records/record_store.h"

namespace idetcd::cluster {

// A node under its name.
struct NamedNode {
  std::string name;
  int64_t id = 0;
  int64_t token = 0;
  std::string uuid;
  records::HostAddresses addresses;
  int64_t lease = 0;
  int64_t revision = 0;  // of the store when it was claimed
};

class Herald {
 public:
  // Either may be missing. `worker` outlives the herald.
  Herald(std::shared_ptr<StateDirectory> state, std::optional<ClaimHook::Options> hook, WorkerThread& worker,
         Logger log);

  void claimed(const NamedNode& node);
  void moved(const NamedNode& node);  // the same name, other addresses
  void lost(const NamedNode& node);

  // No program is started any more; what runs or waits has until then. Any thread.
  void finish(std::chrono::nanoseconds budget);
  // The process is about to end without finish(): no program is left running, and the file says nothing. Any thread.
  void abandon();

 private:
  // What the files are to say. Of what comes while the worker is busy the last is written.
  struct Note {
    std::optional<RememberedNode> node;  // none: as it was
    std::string identity;
    std::promise<void> written;
    ClaimHook::Ready is_written = written.get_future().share();
  };

  ClaimHook::Ready write(std::optional<RememberedNode> node, std::string identity);
  void writeNext();

  const std::shared_ptr<StateDirectory> state_;
  const std::unique_ptr<ClaimHook> hook_;
  WorkerThread& worker_;
  const Logger log_;
  std::mutex mutex_;            // guards the next
  std::shared_ptr<Note> next_;  // for the worker, if it has not begun yet
};

// The identity file of a node.
std::string renderIdentity(const NamedNode& node);

}  // namespace idetcd::cluster
