// What the services on one loop share. Loop thread only, but for reading the counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/event_loop.h"
#include "records/epoch.h"
#include "server/write_budget.h"

namespace idetcd::server {

// Written by one thread, so a plain load and store do (relaxed: a reader wants the number, nothing that hangs on it).
class Counter {
 public:
  void add(uint64_t n) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Counters {
  Counter udp_received;
  Counter udp_sent;
  Counter udp_dropped;      // no query, or from port 0: not answered on purpose
  Counter udp_send_failed;  // no room in the socket, no route
  Counter tcp_accepted;
  Counter tcp_evicted;  // the longest idle one, to make room
  Counter tcp_timed_out;
  Counter tcp_stalled;   // closed: the client did not read its answers
  Counter tcp_deferred;  // answers that were put off until the client has read others
  Counter tcp_received;  // messages
};

class UdpService;

struct WorkerContext {
  net::EventLoop& loop;
  records::EpochDomain::Reader reader;
  Counters counters;
  std::vector<UdpService*> udp_services;  // each enters and leaves on its own
  const std::shared_ptr<WriteBudget> write_budget;

  WorkerContext(net::EventLoop& event_loop, records::EpochDomain& epochs,
                std::shared_ptr<WriteBudget> budget = std::make_shared<WriteBudget>())
      : loop(event_loop), reader(epochs), write_budget(std::move(budget)) {}
};

}  // namespace idetcd::server
