// What Client::Statistics is made of. For etcd/*.cc only. Written by the completion thread, read by any: relaxed, since
// no counter guards anything else.
#pragma once

#include <atomic>
#include <cstdint>

#include "etcd/client.h"

namespace idetcd::etcd {

class Counter {
 public:
  void add() { value_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Counters {
  Counter endpoint_failures;
  Counter tls_reloads;
  Counter tls_failures;
  Counter authentications;
  Counter authentication_failures;

  Client::Statistics snapshot() const {
    return {.endpoint_failures = endpoint_failures.value(),
            .tls_reloads = tls_reloads.value(),
            .tls_failures = tls_failures.value(),
            .authentications = authentications.value(),
            .authentication_failures = authentication_failures.value()};
  }
};

}  // namespace idetcd::etcd
