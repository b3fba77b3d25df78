// The names that the kernel may answer for, by address: those that the sockets there would answer from the cluster's
// records alone, for any client. Whatever else a query may meet (a log, an acl, a limit, another block's zone), it has to
// meet, so it is passed. Pure; any thread.
#pragma once

#include "base/ip_address.h"
#include "dns/name.h"
#include "kernel/layout.h"
#include "net/local_addresses.h"
#include "records/record_store.h"
#include "resolve/router.h"

namespace idetcd::directive {

// A zone that one address answers in the kernel.
struct PlannedZone {
  const records::RecordStore* store = nullptr;
  const resolve::Router::Zone* route = nullptr;  // whose block and meter
  uint8_t flags = 0;                             // of kernel::ListenerZone
};

struct PlannedListener {
  SocketAddress address;             // an unspecified IP: all of its family
  std::vector<PlannedZone> zones;    // the longest first, kernel::kListenerZones at most
  std::vector<PlannedZone> reverse;  // which zone answers PTR: one, or none
};

// Borrows from `routes`. Addresses at which nothing can be answered are left out.
std::vector<PlannedListener> planListeners(std::span<const resolve::ListenerRoutes> routes);

// Where queries to a listener at `address` come in: at its own address, or of those of the machine, `assigned`, at each
// that is not `taken` by another listener. What link-local addresses mean depends on the interface: they are left out.
std::vector<kernel::ListenerKey> keysOf(const SocketAddress& address, std::span<const SocketAddress> taken,
                                        std::span<const net::AssignedAddress> assigned);

// By which the program knows an address of this machine, wherever the server listens.
kernel::ListenerKey ownAddressKey(const IpAddress& ip);

}  // namespace idetcd::directive
