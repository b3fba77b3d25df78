// Shared by the services on one loop. Loop thread only, but for reading the counters.
#pragma once

#include "net/descriptor_budget.h"
#include "net/event_loop.h"
#include "records/epoch.h"
#include "server/client_connections.h"
#include "server/counters.h"
#include "server/write_budget.h"

namespace idetcd::server {

class UdpService;

struct WorkerContext {
  net::EventLoop& loop;
  records::EpochDomain::Reader reader;
  Counters counters;
  std::vector<UdpService*> udp_services;  // each enters and leaves on its own
  ClientConnections clients;              // of all listeners for TCP
  const std::shared_ptr<WriteBudget> write_budget;
  const std::shared_ptr<net::DescriptorAccount> descriptors;

  WorkerContext(net::EventLoop& event_loop, records::EpochDomain& epochs,
                std::shared_ptr<WriteBudget> budget = std::make_shared<WriteBudget>(),
                std::shared_ptr<net::DescriptorAccount> account = net::DescriptorBudget::unlimited()->account(0),
                metrics::Scope metrics = {})
      : loop(event_loop),
        reader(epochs),
        counters(std::move(metrics)),
        write_budget(std::move(budget)),
        descriptors(std::move(account)) {}
};

}  // namespace idetcd::server
