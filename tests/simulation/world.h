// Everything that a seed decides: machines and their processes, the network between them and a cluster of etcd, an
// operator, and what goes wrong with all of them and when.
//
// A run has three parts: nodes start while faults come and go, all faults end, and the world is watched until all is as
// it should be. The judge looks on all the time. The same options give the same run, event by event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulation/judge.h"
#include "simulation/process.h"
#include "simulation/random.h"
#include "simulation/simulated_etcd.h"
#include "simulation/timeline.h"
#include "simulation/virtual_time.h"
#include "slots/name_pattern.h"
#include "store/store.h"

namespace idetcd::simulation {

struct RunOptions {
  uint64_t seed = 1;
  size_t nodes = 0;      // 0: the seed decides
  bool trace = false;    // keep the timeline
  bool defects = false;  // etcd has those that naming/README.md lists, too
  // In place of faults: all nodes start at once, with three members of etcd that take `rate` requests a second, and a
  // lease of 20 s. What that costs is told; the judge does not look.
  bool cost = false;
  uint64_t rate = 10'000;
  int64_t relay = 0;  // a relay for so many nodes; 0: with `cost` none, else the seed decides
};

struct RunResult {
  std::optional<Violation> violation;
  std::string timeline;  // of a violation, if it was kept
  std::string scenario;  // in a line
  std::string cost;      // a table, if it was asked for
  uint64_t events = 0;
  uint64_t states = 0;  // that processes came to, each by a turn of one
  uint64_t faults = 0;
  size_t nodes = 0;
  Duration time{0};  // that passed in the world
};

RunResult simulate(const RunOptions& options);

}  // namespace idetcd::simulation
