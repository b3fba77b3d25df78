#include "naming/machine_watch.h"

namespace idetcd::naming {

void MachineWatch::watchGeneration(OwnName& name) {
  const auto on_change = [this, &name] {
    const auto alive = owner_.lock();
    if (!alive) return;
    name.noteGeneration();  // now, whatever the scheduler's thread is at
    scheduler_.post([alive, &name, log = log_] {
      log.info("this machine was resumed from a snapshot: confirming the name");
      name.suspect();
    });
  };
  generation_ = std::make_unique<node::VmGeneration>(on_change, log_);
}

void MachineWatch::watchAddresses(std::function<Result<node::NodeAddresses>()> find,
                                  std::function<void(const Result<node::NodeAddresses>&)> on_found) {
  const auto look = [this, find = std::move(find), on_found = std::move(on_found)] {
    const Result<node::NodeAddresses> found = find();
    if (const auto alive = owner_.lock()) scheduler_.post([alive, on_found, found] { on_found(found); });
  };
  addresses_ = std::make_unique<node::AddressMonitor>(node::AddressMonitor::Options{}, look, log_);
}

}  // namespace idetcd::naming
