// Shared by the services on one loop. Loop thread only, but for reading the counters.
#pragma once

#include "base/metrics.h"
#include "net/descriptor_budget.h"
#include "net/event_loop.h"
#include "records/epoch.h"
#include "resolve/request.h"
#include "server/client_connections.h"

namespace idetcd::server {

// Counts what the listeners of one loop have received, answered and refused. Written on the loop's thread.
struct Counters : metrics::Group {
  using Group::Group;
  static constexpr std::array<uint64_t, 7> kBatchBounds{1, 2, 4, 8, 16, 32, 64};

  metrics::Counter udp_received{*this, "idetcd_udp_received_total", "Datagrams that the listeners have received."};
  metrics::Counter udp_sent{*this, "idetcd_udp_sent_total",
                            "Answers over UDP that were written at once, without asking another server."};
  static constexpr metrics::Help kDroppedHelp{"Queries that get no answer, and why."};
  static constexpr metrics::LabelName kReason{"reason"};

  metrics::CountersBy<resolve::DropReason, resolve::kDropReasons.size()> dropped{
      *this, "idetcd_queries_dropped_total", kReason, resolve::kDropReasons, kDroppedHelp};
  metrics::Counter udp_send_failed{*this, "idetcd_udp_send_failures_total",
                                   "Answers over UDP that the kernel did not take: no room in the socket, no route."};
  metrics::Histogram udp_batches{*this, "idetcd_udp_batch_datagrams",
                                 "Datagrams that one read of a listener has brought.", kBatchBounds};
  metrics::Counter tcp_accepted{*this, "idetcd_tcp_accepted_total", "Connections of clients that were accepted."};
  metrics::Counter tcp_evicted{*this, "idetcd_tcp_evicted_total",
                               "Connections that were closed to make room: the longest idle of the client with most, "
                               "or that with most of a query that is not complete."};
  metrics::Counter tcp_refused{*this, "idetcd_tcp_refused_total",
                               "Connections that were closed at once: no room, and none that could be closed for it."};
  metrics::Counter tcp_timed_out{*this, "idetcd_tcp_timed_out_total",
                                 "Connections that were closed since no query was completed in time."};
  metrics::Counter tcp_stalled{*this, "idetcd_tcp_stalled_total",
                               "Connections that were closed since the client did not read its answers."};
  metrics::Counter tcp_deferred{*this, "idetcd_tcp_deferred_total",
                                "Answers over TCP that were put off until the client has read others."};
  metrics::Counter tcp_received{*this, "idetcd_tcp_received_total", "Queries that were received over TCP, TLS and HTTPS."};
  metrics::Counter tls_handshakes{*this, "idetcd_tls_handshakes_total", "TLS handshakes of clients that were completed."};
  metrics::Counter tls_failed{*this, "idetcd_tls_failures_total",
                              "Connections over TLS that failed during the handshake."};
};

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
