// Metrics of a node that owns no name yet. tests/e2e/test_prometheus.py shows one that does.
#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "directive/idetcd/cluster.h"
#include "support/metric_values.h"

namespace idetcd::directive {
namespace {

using namespace std::chrono_literals;

TEST(ClusterMetricsTest, BeforeANameIsOwned) {
  const auto thread = etcd::CompletionThread::make();
  ASSERT_TRUE(thread);
  records::EpochDomain epochs;
  const records::RecordStore::Options zone{
      .zone = dns::Name::parse("tf.local.").value(), .addresses = {}, .hash_seed = randomHashSeed()};
  records::RecordStore store(epochs, zone);
  const auto second = std::make_shared<records::RecordStore>(epochs, zone);
  naming::Member::Options options;
  options.pattern = slots::NamePattern::parse("worker{{.ID}}.tf.local.", 10).value();
  const auto client = [&thread] { return std::make_unique<etcd::Client>(**thread, etcd::Client::Options{}, Logger()); };
  naming::Member member(**thread, client(), store, std::move(options), Logger(), {});
  const metrics::Registry registry;
  const ClusterMetrics metrics(registry.scope(), member, store, 20s);
  auto values = test_support::valuesOf(registry);
  for (const char* name : {"idetcd_owned", "idetcd_token", "idetcd_lease_remaining_seconds", "idetcd_names_fresh",
                           "idetcd_generation", "idetcd_drained", "idetcd_moving", "idetcd_moved", "idetcd_check_failed", "idetcd_check_out"}) {
    EXPECT_EQ(values.at(name), 0) << name;
  }
  EXPECT_TRUE(std::isinf(values.at("idetcd_names_age_seconds")));
  const double empty = values.at("idetcd_table_bytes");
  constexpr int kNames = 2000;
  for (int i = 0; i < kNames; ++i) {
    const auto address = IpAddress::v4({10, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)});
    store.put(dns::Name::parse("worker" + std::to_string(i) + ".tf.local.").value(), {.ipv4 = address, .ipv6 = {}}, 1);
  }
  constexpr double kEntry = 64;  // bytes
  EXPECT_GT(empty, 0);
  EXPECT_GE(test_support::valuesOf(registry).at("idetcd_table_bytes"), kNames * kEntry);
  EXPECT_LT(empty, kNames * kEntry);
  store.setGeneration(4711);
  EXPECT_EQ(test_support::valuesOf(registry).at("idetcd_generation"), 4711);
  store.setFreshUntil(BootClock::now() + 15s);
  values = test_support::valuesOf(registry);
  EXPECT_EQ(values.at("idetcd_names_fresh"), 1);
  EXPECT_GE(values.at("idetcd_names_age_seconds"), 5) << "the lease is 20 s";
  EXPECT_LT(values.at("idetcd_names_age_seconds"), 15);
  member.addSecond(client(), second, {}, false);
  EXPECT_EQ(test_support::valuesOf(registry).at("idetcd_moving"), 1);
  EXPECT_EQ(test_support::valuesOf(registry).at("idetcd_moved"), 0);
}

}  // namespace
}  // namespace idetcd::directive
