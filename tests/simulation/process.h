// One process of idetcd on one machine: the real naming protocol over a simulated scheduler and store. No state
// directory, hook or socket; what its state directory would keep, the machine does (world.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "naming/ownership.h"
#include "naming/ownership_reporter.h"
#include "naming/protocol.h"
#include "records/epoch.h"
#include "records/record_store.h"
#include "simulation/random.h"
#include "simulation/simulated_store.h"
#include "simulation/virtual_time.h"
#include "unit/naming/records_view.h"

namespace idetcd::simulation {

class Process : public std::enable_shared_from_this<Process> {
 public:
  struct Options {
    uint64_t id = 0;  // of the process
    size_t machine = 0;
    uint64_t seed = 1;  // of its random numbers
    naming::Protocol::Options protocol;
    SimulatedStore::Options store;
    int64_t preferred_slot = 0;  // with the next: what the process before has left
    int64_t seen_token = 0;
    Logger log;
    std::function<void(Process&)> after_turn;
    std::function<void(Process&, const naming::Ownership&)> on_claimed;
    std::function<void(Process&)> on_lost;
    std::function<void(Process&)> on_released;  // after terminate()
  };

  // What is passed by reference outlives the process.
  Process(VirtualTime& time, const SimulatedClock& clock, Network& network, Options options);
  ~Process();

  void start();
  // SIGTERM: gives its name back; on_released.
  void terminate();
  // SIGKILL, or the end of terminate().
  void kill() { scheduler_.end(); }

  uint64_t id() const { return options_.id; }
  size_t machine() const { return options_.machine; }
  // What it would say of its name now.
  std::optional<naming::Ownership> ownership() const { return protocol_.name().ownership(); }
  std::string uuid() const { return protocol_.name().record().id; }
  // The highest revision of a change that the protocol has been shown, or a lower one: see the definition.
  int64_t highestSeen() const;
  bool reserves() const { return options_.protocol.claim.hold.count() > 0; }
  int64_t limit() const { return options_.protocol.claim.pattern.limit(); }
  SimulatedScheduler& scheduler() { return scheduler_; }
  const SimulatedScheduler& scheduler() const { return scheduler_; }
  SimulatedStore& store() { return store_; }
  const SimulatedStore& store() const { return store_; }
  naming::Protocol& protocol() { return protocol_; }
  records::RecordStore& records() { return records_; }
  int64_t generation() const { return records_.generation(); }
  // What its names say of this one: RecordsView::at().
  std::string lookUp(const std::string& name) { return view_.at(name); }
  bool isFresh() const { return records_.isFresh(scheduler_.now()); }

 private:
  naming::Protocol::Options protocolOptions();

  Options options_;
  Random random_;
  records::EpochDomain epochs_;
  records::RecordStore records_;
  naming::RecordsView view_{epochs_, records_};
  SimulatedScheduler scheduler_;
  SimulatedStore store_;
  naming::Protocol protocol_;
  naming::OwnershipReporter reporter_;
};

}  // namespace idetcd::simulation
