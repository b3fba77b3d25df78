// Families that follow from others: nothing is counted for them. One thread.
#pragma once

#include "directive/prometheus/snapshot.h"

namespace idetcd::directive {

// Adds what CoreDNS shows under two names: the deprecated `coredns_forward_*` beside `coredns_proxy_*`, and the queries
// of a cache beside its hits and misses.
void addDerived(Snapshot& snapshot);

}  // namespace idetcd::directive
