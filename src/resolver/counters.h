// Counts the handling of foreign names: questions asked of other servers, the cache, what is withheld or made up. Written on
// the thread of the loop that each group belongs to. Names and labels of CoreDNS, where it has them.
#pragma once

#include "base/metrics.h"

namespace idetcd::resolver {

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

  // The bounds of CoreDNS: 250 µs · 2ⁿ, in nanoseconds.
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
  metrics::Gauge up{*this, "idetcd_forward_server_up", "Event loops that have not found a server to be down."};
};

// Of answers, or of denials, as the label `type` says.
struct CacheKindCounters : metrics::Group {
  using Group::Group;

  metrics::Counter hits{*this, "coredns_cache_hits_total",
                        "Queries for which the cache had an answer, which may be stale."};
  metrics::Counter evictions{*this, "coredns_cache_evictions_total", "Answers that gave way to others."};
  metrics::Gauge entries{*this, "coredns_cache_entries", "Answers in the cache."};
};

struct CacheCounters : metrics::Group {
  explicit CacheCounters(const metrics::Scope& scope)
      : Group(scope), success(scope.with("type", "success")), denial(scope.with("type", "denial")) {}

  metrics::Counter misses{*this, "coredns_cache_misses_total", "Queries for which the cache had no answer."};
  metrics::Counter served_stale{*this, "coredns_cache_served_stale_total",
                                "Queries that were answered with what is stale."};
  metrics::Counter prefetches{*this, "coredns_cache_prefetch_total",
                              "Answers that were asked for anew before their time was over."};
  metrics::Counter drops{*this, "coredns_cache_drops_total",
                         "Answers that were not kept since they say nothing that lasts: a denial without SOA, a TTL of "
                         "0, aliases without what they lead to."};
  metrics::Counter cut_hits{*this, "idetcd_cache_cut_hits_total",
                            "Queries that were answered from the cache since a name above does not exist; they count "
                            "among the misses too."};
  metrics::Counter insertions{*this, "idetcd_cache_insertions_total", "Answers that were put into the cache."};
  metrics::Gauge bytes{*this, "idetcd_cache_bytes", "The size of all answers in the cache."};
  CacheKindCounters success;
  CacheKindCounters denial;
};

struct RebindingCounters : metrics::Group {
  using Group::Group;

  metrics::Counter withheld{*this, "idetcd_private_withheld_total",
                            "Answers of upstreams that were withheld because of a private address."};
};

struct Dns64Counters : metrics::Group {
  using Group::Group;

  // CoreDNS's name.
  metrics::Counter translated{*this, "coredns_dns64_requests_translated_total",
                              "Queries that were answered with AAAA records made of A records."};
  metrics::Counter reversed{*this, "idetcd_dns64_reverse_total",
                            "Queries for the name of an address of the prefix that were answered with that of the IPv4 "
                            "address within."};
};

}  // namespace idetcd::resolver
