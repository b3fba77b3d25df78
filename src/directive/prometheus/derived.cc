#include "directive/prometheus/derived.h"

#include "directive/prometheus/families.h"

namespace idetcd::directive {

namespace {

using metrics::Kind;
using metrics::LabelName;

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
  constexpr std::string_view kProxyDuration = "coredns_proxy_request_duration_seconds";
  regroup(snapshot, kProxyDuration, families::kForwardRequests);
  regroup(snapshot, kProxyDuration, families::kForwardResponses);
  regroup(snapshot, kProxyDuration, families::kForwardDuration);
  regroup(snapshot, "coredns_proxy_healthcheck_failures_total", families::kForwardFailures);
  regroup(snapshot, "coredns_proxy_conn_cache_hits_total", families::kForwardHits);
  regroup(snapshot, "coredns_proxy_conn_cache_misses_total", families::kForwardMisses);
  regroup(snapshot, "coredns_cache_hits_total", families::kCacheRequests);
  regroup(snapshot, "coredns_cache_misses_total", families::kCacheRequests);
}

}  // namespace idetcd::directive
