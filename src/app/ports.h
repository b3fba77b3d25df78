// The addresses on which a server with this Corefile listens, and who keeps it from them. Blocks: reads the kernel's tables
// of sockets. Any thread.
#pragma once

#include "app/plan.h"
#include "net/port_holder.h"

namespace idetcd::app {

// Where its blocks answer DNS, each once. A block whose `bind` means nothing on this machine is left out.
std::vector<SocketAddress> wantedAddresses(const Plan& plan);

struct PortConflict {
  std::string text;                       // "on this machine dnsmasq (pid 81) has …, which keeps the server from …"
  std::optional<net::PortHolder> holder;  // none: the Corefile is in its own way
};
// Ports that another program has. Those of a server of this kind are left out: it may be the one with this Corefile.
std::vector<PortConflict> portConflicts(const Plan& plan);

}  // namespace idetcd::app
