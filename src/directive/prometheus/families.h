// The families that the directive adds to those of the registry: what is counted of queries, and what CoreDNS shows under
// a second name.
#pragma once

#include "directive/prometheus/snapshot.h"

namespace idetcd::directive::families {

using metrics::Kind;
using metrics::LabelName;

inline constexpr LabelName kOfBuild[]{"version", "revision", "goversion"};
inline constexpr LabelName kOfServer[]{"server", "view"};
inline constexpr LabelName kOfZone[]{"server", "zone", "view"};
inline constexpr LabelName kOfZoneAndName[]{"server", "zone", "view", "name"};
inline constexpr LabelName kOfZoneAndProto[]{"server", "zone", "view", "proto"};
inline constexpr LabelName kOfRequest[]{"server", "zone", "view", "proto", "family", "type"};
inline constexpr LabelName kOfResponse[]{"server", "zone", "view", "rcode", "plugin"};
inline constexpr LabelName kOfCache[]{"server", "zones", "view"};
inline constexpr LabelName kOfUpstream[]{"to"};
inline constexpr LabelName kOfUpstreamAndRcode[]{"to", "rcode"};
inline constexpr LabelName kOfUpstreamAndProto[]{"to", "proto"};

// Of the process.
inline constexpr Exposed kBuildInfo{"coredns_build_info", Kind::kGauge, "The version of the server.", kOfBuild};
inline constexpr Exposed kPanics{"coredns_panics_total", Kind::kCounter,
                                 "Queries that failed by a defect: 0, for a defect ends the process."};
inline constexpr Exposed kPluginEnabled{"coredns_plugin_enabled", Kind::kGauge, "The directives of a zone.",
                                        kOfZoneAndName};

// Of queries (resolve::QueryMeter).
inline constexpr Exposed kRequests{"coredns_dns_requests_total", Kind::kCounter, "Queries.", kOfRequest};
inline constexpr Exposed kDoRequests{"coredns_dns_do_requests_total", Kind::kCounter, "Queries with the DO bit.",
                                     kOfZone};
inline constexpr Exposed kRequestSize{"coredns_dns_request_size_bytes", Kind::kHistogram, "The sizes of queries.",
                                      kOfZoneAndProto};
inline constexpr Exposed kResponses{"coredns_dns_responses_total", Kind::kCounter,
                                    "Responses, by the directive that has answered.", kOfResponse};
inline constexpr Exposed kResponseSize{"coredns_dns_response_size_bytes", Kind::kHistogram, "The sizes of responses.",
                                       kOfZoneAndProto};
inline constexpr Exposed kDuration{"coredns_dns_request_duration_seconds", Kind::kHistogram,
                                   "The time from a query to its response.", kOfZone};
inline constexpr Exposed kShortDuration{"idetcd_dns_request_duration_seconds", Kind::kHistogram,
                                        "The time from a query to its response, where that is short.", kOfZone};
inline constexpr Exposed kAllowed{"coredns_acl_allowed_requests_total", Kind::kCounter,
                                  "Queries that acl has let through.", kOfServer};
inline constexpr Exposed kFiltered{"coredns_acl_filtered_requests_total", Kind::kCounter,
                                   "Queries to which acl has answered without records.", kOfZone};
inline constexpr Exposed kBlocked{"coredns_acl_blocked_requests_total", Kind::kCounter, "Queries that acl has refused.",
                                  kOfZone};
inline constexpr Exposed kDropped{"coredns_acl_dropped_requests_total", Kind::kCounter,
                                  "Queries that acl has left without an answer.", kOfZone};

// Derived from others (derived.h).
inline constexpr Exposed kCacheRequests{"coredns_cache_requests_total", Kind::kCounter,
                                        "Queries that the cache was asked for.", kOfCache};
inline constexpr Exposed kForwardRequests{"coredns_forward_requests_total", Kind::kCounter,
                                          "Deprecated: see coredns_proxy_request_duration_seconds_count.", kOfUpstream};
inline constexpr Exposed kForwardResponses{"coredns_forward_responses_total", Kind::kCounter,
                                           "Deprecated: see coredns_proxy_request_duration_seconds_count.",
                                           kOfUpstreamAndRcode};
inline constexpr Exposed kForwardDuration{"coredns_forward_request_duration_seconds", Kind::kHistogram,
                                          "Deprecated: see coredns_proxy_request_duration_seconds.",
                                          kOfUpstreamAndRcode};
inline constexpr Exposed kForwardFailures{"coredns_forward_healthcheck_failures_total", Kind::kCounter,
                                          "Deprecated: see coredns_proxy_healthcheck_failures_total.", kOfUpstream};
inline constexpr Exposed kForwardHits{"coredns_forward_conn_cache_hits_total", Kind::kCounter,
                                      "Deprecated: see coredns_proxy_conn_cache_hits_total.", kOfUpstreamAndProto};
inline constexpr Exposed kForwardMisses{"coredns_forward_conn_cache_misses_total", Kind::kCounter,
                                        "Deprecated: see coredns_proxy_conn_cache_misses_total.", kOfUpstreamAndProto};

}  // namespace idetcd::directive::families
