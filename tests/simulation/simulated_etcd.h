// A cluster of etcd members in virtual time: one model of what a quorum has (etcd_model.h), members that have applied
// more or less of it, and what may happen to them.
//
// A member applies everything in order, a moment after the quorum has it. What waits for that is answered then.
//   lagging    it applies later than others
//   frozen     it applies nothing, and answers what needs no applying: serializable reads, keepalives, progress
//   paused     its process stands; what arrives is dealt with when it goes on
//   isolated   it reaches no other member; it says so after an election's time
//   killed     connections break; it comes back with all that the quorum has
//   stale      it applies nothing, and answers linearizable reads all the same (etcd's defect 20418)
// Three more defects of etcd (naming/README.md) are switched on by setRenewsEnded(), setOldEvents() and revoke(). Without
// the last a leader that is paused for longer than an election has lost its office when it goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "simulation/etcd_model.h"
#include "simulation/random.h"
#include "simulation/simulated_store.h"
#include "simulation/virtual_time.h"
#include "store/store.h"

namespace idetcd::simulation {

// What clients have asked for, and what was sent to them.
struct Traffic {
  static constexpr size_t kWatches = std::variant_size_v<Request>;
  static constexpr size_t kProgress = kWatches + 1;
  std::array<uint64_t, kProgress + 1> requests{};  // by the index of a Request, and the two above
  uint64_t writes = 0;                             // of these requests, those that go through the members' log
  uint64_t events = 0;                             // in all watches
  uint64_t bytes = 0;                              // answers and watches, as gRPC frames them, to within a tenth
};

class SimulatedEtcd {
 public:
  using Reply = std::function<void(Answer)>;
  // Where a watch's messages go, in their order.
  struct WatchSink {
    std::function<void(int64_t revision, uint64_t cluster_id)> created;
    std::function<void(store::WatchBatch)> batch;
    std::function<void(store::StoreError)> ended;
  };
  enum class Fault { kFrozen, kPaused, kIsolated, kKilled, kStale };

  // `time` and `random` outlive it. `on_change` is called when the quorum's state has changed.
  SimulatedEtcd(VirtualTime& time, Random& random, size_t members, std::function<void()> on_change);

  // No request is dealt with sooner than this after the one before, and members apply together what came meanwhile.
  // 0, as at the beginning: however many come, each is dealt with at once.
  void setServiceTime(Duration time) { service_time_ = time; }
  const Traffic& traffic() const { return traffic_; }

  const EtcdModel& model() const { return model_; }
  size_t size() const { return members_.size(); }

  // --- clients; what has arrived at a member ---
  // It listens: a connection to it can be made.
  bool listens(size_t member) const { return up_ && !members_[member].is(Fault::kKilled); }
  // `reply` is called once or never.
  void handle(size_t member, Request request, Reply reply);
  // The number of the watch, for the next two; `sink` may be called within.
  uint64_t openWatch(size_t member, std::vector<store::WatchRange> ranges, WatchSink sink);
  void askProgress(uint64_t watch);
  void cancelWatch(uint64_t watch);

  // --- faults ---
  void begin(size_t member, Fault fault);
  void end(size_t member, Fault fault);
  void setLag(size_t member, Duration lag) { members_[member].lag = lag; }
  bool isHealthy(size_t member) const { return members_[member].faults == 0; }
  bool isUp() const { return up_; }
  // Enough members are healthy that one more may fail.
  bool canSpare() const;
  void changeLeader();
  std::optional<size_t> leader() const { return has_leader_ ? std::optional(leader_) : std::nullopt; }
  // Leases that have ended, and are not revoked yet, are confirmed when they are renewed, and revoked then. `on_renewed`
  // is told of each; empty: no more.
  void setRenewsEnded(std::function<void(int64_t lease)> on_renewed) { on_renewed_ended_ = std::move(on_renewed); }
  // Watches from a future revision that are opened now begin with older events.
  void setOldEvents(bool on) { old_events_ = on; }
  // A leader of before goes on, and revokes what its successor has renewed. Nothing if there is no such lease.
  void revoke(int64_t lease);
  // The watches of this member go on without any event, though it answers all else.
  void deafen(size_t member);
  bool hasDeafWatches() const;
  // They end with an error.
  void breakWatches(size_t member, const store::StoreError& error);
  void compact(int64_t revision);
  void setNoSpace(bool on, size_t last_ones = 0) { model_.setNoSpace(on, last_ones); }
  // An operator's, beside all faults of members.
  store::StoreResult<store::TxnResult> operate(const store::TxnRequest& request);
  int64_t operatorLease(std::chrono::seconds ttl);
  // The whole cluster ends, and comes back, without any fault, with what `backup` holds. No `on_change`.
  void stop();
  void startFrom(const EtcdModel& backup, uint64_t cluster_id);

 private:
  struct Member {
    unsigned faults = 0;  // a bit each
    Time isolated_since;
    bool led = false;  // when it was isolated
    Duration lag{0};
    int64_t applied = 1;                                             // the revision
    uint64_t entries = 0;                                            // of the log, that it has applied
    std::deque<std::pair<uint64_t, std::function<void()>>> waiting;  // for an entry
    std::deque<std::function<void()>> inbox;                         // while it is paused
    bool will_apply = false;                                         // all that there is by then
    bool is(Fault fault) const { return (faults & (1U << static_cast<unsigned>(fault))) != 0; }
    bool votes() const { return faults == 0; }
  };
  struct Watch {
    size_t member = 0;
    WatchModel state;
    WatchSink sink;
    bool deaf = false;
  };

  bool isAvailable() const;
  void dispatch(size_t member, const Request& request, const Reply& reply);
  Reply counted(const Request& request, Reply reply);
  void answerWithoutQuorum(size_t member, Request request, Reply reply);
  void process(size_t member, const Request& request, const Reply& reply);
  Answer read(size_t member, const RangeRequest& request);
  void keepAlive(size_t member, int64_t id, const Reply& reply);
  void write(size_t member, const Request& request, const Reply& reply);
  void whenApplied(size_t member, std::function<void()> what);
  void commit();
  void advance(size_t member, uint64_t entries, int64_t revision);
  void catchUp(size_t member);
  void tell(Watch& watch);
  void loseOffice(size_t member);
  void endWatches(size_t member, const store::StoreError& error);
  void lookForExpired();

  VirtualTime& time_;
  Random& random_;
  const std::function<void()> on_change_;
  EtcdModel model_;
  std::vector<Member> members_;
  std::map<uint64_t, Watch> watches_;
  std::deque<std::function<void()>> held_;  // until there is a quorum with a leader
  uint64_t watch_numbers_ = 0;
  uint64_t entries_ = 0;  // of the log
  uint64_t life_ = 0;     // of the cluster: what was planned in another one does not happen
  size_t leader_ = 0;
  bool has_leader_ = true;
  uint64_t elections_ = 0;
  Duration service_time_{0};
  Time busy_until_;
  Traffic traffic_;
  std::function<void(int64_t)> on_renewed_ended_;
  bool old_events_ = false;
  bool up_ = true;
};

}  // namespace idetcd::simulation
