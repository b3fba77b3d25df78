// Families that follow from others: nothing is counted for them. One thread.
#pragma once

#include "directive/prometheus/snapshot.h"

namespace idetcd::directive {

// Adds CoreDNS's duplicates: `coredns_forward_*` for `coredns_proxy_*`, and a cache's requests.
void addDerived(Snapshot& snapshot);

}  // namespace idetcd::directive
