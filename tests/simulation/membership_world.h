// Machines with a cluster of their own etcd, in a world that a seed decides: the real peers::nextStep() at each machine
// whose member leads, over a model of etcd's members (learners, promotion, quorums), with machines that die, are cut
// off, come back without their disk, and leaders that go on with what they saw before another one led.
//
// Judged: no change of the members leaves less in reserve than before it, counted in machines that live and have caught
// up, unless there are to be fewer; no machine that is gone is chosen to vote, or counts for more voters; nobody throws its
// data away while it is a member; in bounded time after the last fault every voter answers, there are as many as the
// machines need, and they are published. The same options give the same run, event by event.
#pragma once

#include "simulation/world.h"

namespace idetcd::simulation {

RunResult simulateMembership(const RunOptions& options);

}  // namespace idetcd::simulation
