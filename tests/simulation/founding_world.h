// Machines without a cluster, in a world that a seed decides: the real founding::Elector of each, with real envelopes,
// over a network, disks and clocks that go wrong. At most `expect` distinct machines are ever electors, which is what
// the founding assumes. Some worlds are calm, and judged for speed and for the order of the numbers too. In some a cluster is
// there, and more than a quorum of new machines comes at once, which could found another one.
//
// Judged: no two decided values; numbers in the order of the starts, voters and the base of the tokens as they should
// be; who has decided stays with it over a restart, if it has a disk; after the last fault, and if a quorum is left,
// all live machines learn the value in bounded time, late ones too. The same options give the same run, event by event.
#pragma once

#include "simulation/world.h"

namespace idetcd::simulation {

RunResult simulateFounding(const RunOptions& options);

}  // namespace idetcd::simulation
