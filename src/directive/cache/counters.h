// What a Cache has answered and holds. Written on its loop's thread. Names and labels of CoreDNS, where it has them.
#pragma once

#include "base/metrics.h"

namespace idetcd::directive {

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

}  // namespace idetcd::directive
