// Keeps one name for this node: claims it, renews its lease, lets it go when etcd says so, and claims again.
//
// A name is owned while all of these hold: a keepalive was confirmed within the lease time, less a margin, of when it
// was sent; so was a read of our incarnation, which shows that no copy of this process has the lease
// (confirmation.h); our own watch has shown the key with our UUID, as created by our claim; and no clock shows that the
// machine stood still since. Nobody asks etcd for that: whatever happens to this process (paused, partitioned,
// suspended), the deadline passes here before etcd gives the name to another node. Completion thread only, but for
// ownership().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "cluster/claim.h"
#include "cluster/confirmation.h"
#include "cluster/context.h"
#include "cluster/own_key.h"
#include "cluster/ownership.h"
#include "etcd/completion_thread.h"
#include "etcd/task.h"
#include "records/record_store.h"

namespace idetcd::cluster {

class NameKeeper {
 public:
  // Where no name is free: waits for one, or, if `exit_when_full` and no name was held yet, calls `on_fatal`, once. A
  // node that has had a name always waits: it still serves the names of the others. `on_change` is called whenever
  // ownership() may say something else, but for the deadline, which passes by itself.
  NameKeeper(Context& context, Claim::Options options, bool exit_when_full, OwnKey& own_key, Confirmation& confirmation,
             std::function<void(std::string)> on_fatal, std::function<void()> on_change);

  // --- before run() ---
  // The slot to take if it is free, or back if it carries our UUID.
  void prefer(int64_t id) { preferred_id_ = id; }

  // Until the Member stops; then lease, ticket and slot are given back.
  etcd::Task<void> run();
  // The Member stops: ends run(). Ownership ends at once.
  void stop();

  // Watches the queue while this node waits for a name. Until the Member stops.
  etcd::Task<void> watchQueue() { return claim_.watchAhead(); }

  // Keeps the slot's value up to date. Until the Member stops.
  etcd::Task<void> keepRecord();
  // This node's addresses have changed.
  void setAddresses(const records::HostAddresses& addresses);
  const NodeRecord& record() const { return claim_.record(); }

  // None after the deadline. Any thread.
  std::optional<Ownership> ownership() const;
  // The name would be owned, had the machine not stood still, perhaps: it is being confirmed.
  bool isBeingConfirmed() const;

 private:
  enum class Loss { kStopped, kLeaseLost, kKeyGone, kConflict, kReverted, kDouble, kCloned };

  etcd::Task<Loss> hold();
  etcd::Task<bool> keepAlive(Backoff& retry);  // false: the lease is lost
  void scheduleKeepAlive();
  void announce(BootClock::time_point started);
  void recordLoss(Loss loss);
  void becomeSomebodyElse();
  void publish();
  void disown();
  OwnKey::Held held() const;
  BootClock::time_point deadline() const;
  void renewNow();

  Context& context_;
  const Claim::Options options_;
  const bool exit_when_full_;
  OwnKey& own_key_;
  Confirmation& confirmation_;
  const std::function<void(std::string)> on_fatal_;
  const std::function<void()> on_change_;
  Claim claim_;
  etcd::Event wake_;   // the own key was seen, or stop()
  etcd::Event moved_;  // keepRecord() may have something to do
  int64_t preferred_id_ = 0;

  bool holding_ = false;  // between a claim and its loss
  bool ever_held_ = false;
  bool overdue_logged_ = false;  // the deadline has passed without an answer
  BootClock::time_point next_keepalive_;
  Standstill::Mark renewed_mark_;  // before the last renewal was sent

  mutable std::mutex mutex_;
  std::optional<Ownership> ownership_;  // guarded by mutex_
  Standstill::Mark confirmed_mark_;     // guarded by mutex_
};

}  // namespace idetcd::cluster
