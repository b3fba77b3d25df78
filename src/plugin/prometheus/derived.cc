#include "plugin/prometheus/derived.h"

#include <algorithm>

namespace idetcd::plugin {

namespace {

using metrics::Kind;
using metrics::LabelName;

constexpr LabelName kTo[]{"to"};
constexpr LabelName kToAndRcode[]{"to", "rcode"};
constexpr LabelName kToAndProto[]{"to", "proto"};
constexpr LabelName kCache[]{"server", "zones", "view"};

constexpr Exposed kForwardRequests{"coredns_forward_requests_total", Kind::kCounter,
                                   "Deprecated: see coredns_proxy_request_duration_seconds_count.", kTo};
constexpr Exposed kForwardResponses{"coredns_forward_responses_total", Kind::kCounter,
                                    "Deprecated: see coredns_proxy_request_duration_seconds_count.", kToAndRcode};
constexpr Exposed kForwardDuration{"coredns_forward_request_duration_seconds", Kind::kHistogram,
                                   "Deprecated: see coredns_proxy_request_duration_seconds.", kToAndRcode};
constexpr Exposed kForwardFailures{"coredns_forward_healthcheck_failures_total", Kind::kCounter,
                                   "Deprecated: see coredns_proxy_healthcheck_failures_total.", kTo};
constexpr Exposed kForwardHits{"coredns_forward_conn_cache_hits_total", Kind::kCounter,
                               "Deprecated: see coredns_proxy_conn_cache_hits_total.", kToAndProto};
constexpr Exposed kForwardMisses{"coredns_forward_conn_cache_misses_total", Kind::kCounter,
                                 "Deprecated: see coredns_proxy_conn_cache_misses_total.", kToAndProto};
constexpr Exposed kCacheRequests{"coredns_cache_requests_total", Kind::kCounter,
                                 "Queries that the cache was asked for.", kCache};

// The series of `from`, summed over the labels that `to` does not have. Of a histogram a counter has the observations.
void regroup(Snapshot& snapshot, std::string_view from, const Exposed& to) {
  const Snapshot::Family* source = snapshot.find(from);
  if (source == nullptr) return;
  std::vector<size_t> places;
  for (const LabelName& label : to.labels) {
    const auto place = std::ranges::find(source->label_names, label.text());
    places.push_back(static_cast<size_t>(place - source->label_names.begin()));
  }
  for (const auto& [labels, series] : source->series) {
    Snapshot::LabelValues values;
    for (const size_t place : places) values.push_back(labels.at(place));
    if (to.kind == Kind::kHistogram) {
      snapshot.add(to, std::move(values), source->bounds, series.buckets, series.sum);
    } else {
      snapshot.add(to, std::move(values), series.value);
    }
  }
}

}  // namespace

void addDerived(Snapshot& snapshot) {
  constexpr std::string_view kDuration = "coredns_proxy_request_duration_seconds";
  regroup(snapshot, kDuration, kForwardRequests);
  regroup(snapshot, kDuration, kForwardResponses);
  regroup(snapshot, kDuration, kForwardDuration);
  regroup(snapshot, "coredns_proxy_healthcheck_failures_total", kForwardFailures);
  regroup(snapshot, "coredns_proxy_conn_cache_hits_total", kForwardHits);
  regroup(snapshot, "coredns_proxy_conn_cache_misses_total", kForwardMisses);
  regroup(snapshot, "coredns_cache_hits_total", kCacheRequests);
  regroup(snapshot, "coredns_cache_misses_total", kCacheRequests);
}

}  // namespace idetcd::plugin
