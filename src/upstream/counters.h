// What became of the questions that a Forwarder has asked others. Written on its loop's thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/metrics.h"

namespace idetcd::upstream {

struct ForwardCounters : metrics::Group {
  using Group::Group;

  metrics::Counter queries{*this, "idetcd_forward_queries_total",
                           "Questions for other servers: of clients, of the cache and of this server itself."};
  metrics::Counter merged{*this, "idetcd_forward_merged_total",
                          "Questions that were on their way already, so that they share the answer."};
  metrics::Counter absorbed{*this, "idetcd_forward_absorbed_total",
                            "Queries that a client has sent again while it waited for the answer."};
  metrics::Counter attempts{*this, "idetcd_forward_attempts_total",
                            "Messages that were sent to other servers, without health checks."};
  metrics::Counter repeated{*this, "idetcd_forward_repeated_total",
                            "Messages that were sent since the one before seemed to be lost."};
  metrics::Counter discarded{*this, "idetcd_forward_discarded_total",
                             "Messages that were received, but are no answer to what was asked."};
  metrics::Counter bad_cookies{*this, "idetcd_forward_bad_cookies_total",
                               "Answers over UDP that were not believed: the cookie is wrong, or missing though the "
                               "server gives cookies."};
  metrics::Counter suspected{*this, "idetcd_forward_suspected_spoofing_total",
                             "Questions that went over TCP since datagrams came that looked forged: several that were "
                             "no answer, or one with the name in another case."};
  metrics::Counter failed{*this, "idetcd_forward_failures_total",
                          "Questions that no other server has answered: the client gets SERVFAIL."};
  metrics::Counter evicted{*this, "idetcd_forward_evicted_total",
                           "Queries that gave way to those of a client that had fewer waiting."};
  // These two are CoreDNS's.
  metrics::Counter concurrent_rejects{*this, "coredns_forward_max_concurrent_rejects_total",
                                      "Queries that were refused since as many as max_concurrent were waiting."};
  metrics::Counter healthcheck_broken{*this, "coredns_forward_healthcheck_broken_total",
                                      "Questions that were sent though all other servers are down."};
};

// Answers of one server with one rcode.
struct UpstreamAnswers : metrics::Group {
  using Group::Group;

  // Those of CoreDNS: 250 µs · 2ⁿ, in nanoseconds.
  static constexpr std::array<uint64_t, 16> kBounds = [] {
    std::array<uint64_t, 16> bounds{};
    for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = uint64_t{250000} << i;
    return bounds;
  }();

  metrics::Histogram duration{*this, "coredns_proxy_request_duration_seconds",
                              "The time from a question to the answer of another server.", kBounds, 1e9};
};

// Questions over connections to one server.
struct UpstreamConnectionCounters : metrics::Group {
  using Group::Group;

  metrics::Counter hits{*this, "coredns_proxy_conn_cache_hits_total",
                        "Questions over a connection that was open already."};
  metrics::Counter misses{*this, "coredns_proxy_conn_cache_misses_total",
                          "Questions for which a connection was opened."};
};

// Of one server that is asked.
struct UpstreamCounters : metrics::Group {
  using Group::Group;

  metrics::Counter healthcheck_failures{*this, "coredns_proxy_healthcheck_failures_total",
                                        "Health checks that a server has not answered."};
};

}  // namespace idetcd::upstream
