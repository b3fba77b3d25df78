// Watches this machine for a node, on threads that sleep until something happens: its addresses, and whether it was
// resumed from a snapshot. What has happened is posted to the scheduler. One thread.
#pragma once

#include "base/log.h"
#include "base/result.h"
#include "naming/own_name.h"
#include "node/address_monitor.h"
#include "node/addresses.h"
#include "node/vm_generation.h"
#include "runtime/scheduler.h"

namespace idetcd::naming {

class MachineWatch {
 public:
  // What is passed to the functions lives as long as `owner`, and the scheduler as long as this. Nothing is called any
  // more once `owner` or this has gone, but for what was posted before.
  MachineWatch(runtime::Scheduler& scheduler, std::weak_ptr<void> owner, Logger log)
      : scheduler_(scheduler), owner_(std::move(owner)), log_(std::move(log)) {}

  // After a new generation the name is not certain until it has been confirmed anew.
  void watchGeneration(OwnName& name);
  // When the addresses may have changed, `find` is called, on a thread of its own, and `on_found` with what it
  // returned, on the scheduler's.
  void watchAddresses(std::function<Result<node::NodeAddresses>()> find,
                      std::function<void(const Result<node::NodeAddresses>&)> on_found);

 private:
  runtime::Scheduler& scheduler_;
  const std::weak_ptr<void> owner_;
  const Logger log_;
  std::unique_ptr<node::VmGeneration> generation_;
  std::unique_ptr<node::AddressMonitor> addresses_;
};

}  // namespace idetcd::naming
