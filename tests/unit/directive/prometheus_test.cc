// A scrape: the text format, and what follows from the counts.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "directive/prometheus/query_meters.h"
#include "resolve/query_meter.h"

namespace idetcd::directive {
namespace {

using metrics::Kind;

constexpr metrics::LabelName kLabels[]{"a", "b"};
constexpr Exposed kCounter{"x_total", Kind::kCounter, "Counts.", kLabels};
constexpr Exposed kGauge{"y", Kind::kGauge, "Says."};
constexpr Exposed kHistogram{"z_seconds", Kind::kHistogram, "Spreads."};

TEST(SnapshotTest, Text) {
  Snapshot snapshot;
  snapshot.add(kCounter, {"quote\" back\\ line\n", ""}, 3);
  snapshot.add(kCounter, {"1", "2"}, 1e15);
  snapshot.add(kCounter, {"1", "2"}, 1);
  snapshot.add(kGauge, {}, 0.25);
  const uint64_t first[]{1, 0, 2};
  const uint64_t second[]{0, 4, 0};
  snapshot.add(kHistogram, {}, {0.5, 10}, first, 21.5);
  snapshot.add(kHistogram, {}, {0.5, 10}, second, 8);
  EXPECT_EQ(snapshot.text(),
            "# HELP x_total Counts.\n"
            "# TYPE x_total counter\n"
            "x_total{a=\"1\",b=\"2\"} 1000000000000001\n"
            "x_total{a=\"quote\\\" back\\\\ line\\n\",b=\"\"} 3\n"
            "# HELP y Says.\n"
            "# TYPE y gauge\n"
            "y 0.25\n"
            "# HELP z_seconds Spreads.\n"
            "# TYPE z_seconds histogram\n"
            "z_seconds_bucket{le=\"0.5\"} 1\n"
            "z_seconds_bucket{le=\"10\"} 5\n"
            "z_seconds_bucket{le=\"+Inf\"} 7\n"
            "z_seconds_sum 29.5\n"
            "z_seconds_count 7\n");
}

TEST(SnapshotTest, TakesWhatARegistryHas) {
  const metrics::Registry registry;
  const metrics::Group group(registry.scope().with("worker", "0"));
  const metrics::Gauge gauge(group, "idetcd_test_bytes", "Bytes.");
  Snapshot snapshot;
  registry.visit([&snapshot](const metrics::Sample& sample) { snapshot.add(sample); });
  EXPECT_EQ(snapshot.text(),
            "# HELP idetcd_test_bytes Bytes.\n# TYPE idetcd_test_bytes gauge\nidetcd_test_bytes{worker=\"0\"} 0\n");
}

TEST(SnapshotTest, Numbers) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::pair<double, const char*> cases[] = {{0, "0"},          {-2, "-2"},          {0.00025, "0.00025"},
                                                  {1e300, "1e+300"}, {kInfinity, "+Inf"}, {-kInfinity, "-Inf"}};
  for (const auto& [value, text] : cases) {
    Snapshot snapshot;
    snapshot.add(kGauge, {}, value);
    EXPECT_EQ(snapshot.text(), std::string("# HELP y Says.\n# TYPE y gauge\ny ") + text + "\n");
  }
}

constexpr metrics::LabelName kProxyLabels[]{"proxy_name", "to", "rcode"};
constexpr Exposed kProxy{"coredns_proxy_request_duration_seconds", Kind::kHistogram, "Times.", kProxyLabels};

// Forwarders of two names, and two answers of each.
TEST(DerivedTest, WhatCoreDnsHasUnderTwoNames) {
  Snapshot snapshot;
  const uint64_t buckets[]{1, 1};
  snapshot.add(kProxy, {"forward", "192.0.2.1:53", "NOERROR"}, {1}, buckets, 3);
  snapshot.add(kProxy, {"other", "192.0.2.1:53", "NOERROR"}, {1}, buckets, 4);
  snapshot.add(kProxy, {"forward", "192.0.2.1:53", "SERVFAIL"}, {1}, buckets, 5);
  addDerived(snapshot);
  const auto* duration = snapshot.find("coredns_forward_request_duration_seconds");
  ASSERT_NE(duration, nullptr);
  EXPECT_EQ(duration->series.size(), 2u);
  const auto& answered = duration->series.at({"192.0.2.1:53", "NOERROR"});
  EXPECT_EQ(answered.buckets, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(answered.sum, 7);
  EXPECT_EQ(snapshot.find("coredns_forward_responses_total")->series.at({"192.0.2.1:53", "NOERROR"}).value, 4);
  EXPECT_EQ(snapshot.find("coredns_forward_requests_total")->series.at({"192.0.2.1:53"}).value, 6);
  EXPECT_EQ(snapshot.find("coredns_forward_healthcheck_failures_total"), nullptr) << "there is nothing to derive it of";
}

TEST(ServerLabel, AsCoreDnsSaysIt) {
  EXPECT_EQ(resolve::serverLabel({.ip = IpAddress::v4({}), .port = 53}, config::Scheme::kDns), "dns://:53");
  EXPECT_EQ(resolve::serverLabel({.ip = IpAddress::v6({}), .port = 53}, config::Scheme::kDns), "dns://:53");
  EXPECT_EQ(resolve::serverLabel({.ip = IpAddress::v4({192, 0, 2, 1}), .port = 5300}, config::Scheme::kTls),
            "tls://192.0.2.1:5300");
  EXPECT_EQ(resolve::serverLabel({.ip = IpAddress::parse("2001:db8::1").value(), .port = 53}, config::Scheme::kDns),
            "dns://[2001:db8::1]:53");
}

}  // namespace
}  // namespace idetcd::directive
