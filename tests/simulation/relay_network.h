// The connections between processes that read the names of each other (naming/relay.h). Messages are delayed, and those of a
// watch come in order; a connection may fall silent at any of them, for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "naming/relay.h"
#include "simulation/network.h"
#include "simulation/random.h"
#include "simulation/virtual_time.h"

namespace idetcd::simulation {

class RelayNetwork {
 public:
  // `find`: the scheduler of a process; null: there is no such process any more.
  RelayNetwork(VirtualTime& time, Random& random, std::function<SimulatedScheduler*(uint64_t)> find)
      : time_(time), random_(random), find_(std::move(find)) {}

  // Of a process. REQUIRES: called when it is there. `filter`: of what relays tell it.
  naming::RelayOptions optionsOf(uint64_t process, int64_t fan_out, ValueFilter filter);
  // Of a thousand messages, those after which their connection is silent.
  void setLost(size_t lost) { lost_ = lost; }
  uint64_t bytes() const { return bytes_; }  // that relays have sent

 private:
  friend class RelayConnection;
  friend class RelayStream;
  class Served;
  // In order, if `next_delivery` is that of those before.
  void send(uint64_t process, std::function<void()> what, Time* next_delivery = nullptr);

  VirtualTime& time_;
  Random& random_;
  const std::function<SimulatedScheduler*(uint64_t)> find_;
  size_t lost_ = 0;
  uint64_t services_made_ = 0;
  std::map<std::string, std::shared_ptr<store::Source>> services_;  // by token
  uint64_t bytes_ = 0;
};

}  // namespace idetcd::simulation
