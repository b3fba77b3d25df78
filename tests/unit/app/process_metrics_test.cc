#include "app/process_metrics.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <sys/resource.h>
#include <vector>

#include <gtest/gtest.h>

#include "support/metric_values.h"

namespace idetcd::app {
namespace {

TEST(ProcessMetrics, SayWhatIsInUse) {
  const metrics::Registry registry;
  const auto budget = net::DescriptorBudget::make(80);
  const ProcessMetrics metrics(registry.scope(), Logger(), budget);
  const auto account = budget->account(0);
  ASSERT_TRUE(account->take(net::DescriptorUse::kClient));
  const auto values = test_support::valuesOf(registry);
  EXPECT_EQ(values.at("idetcd_descriptors"), 1);
  EXPECT_EQ(values.at("idetcd_max_descriptors"), 80);
  EXPECT_EQ(values.at("idetcd_log_lines_dropped_total"), 0);
  account->give(net::DescriptorUse::kClient);
  budget->resize(40);
  EXPECT_EQ(test_support::sumOf(registry, "idetcd_descriptors"), 0);
  EXPECT_EQ(test_support::sumOf(registry, "idetcd_max_descriptors"), 40);
}

TEST(ProcessMetrics, CountRefusedReloads) {
  const metrics::Registry registry;
  ProcessMetrics metrics(registry.scope(), Logger(), net::DescriptorBudget::make(80));
  EXPECT_EQ(test_support::valuesOf(registry).at("coredns_reload_failed_total"), 0);
  metrics.countFailedReload();
  metrics.countFailedReload();
  EXPECT_EQ(test_support::sumOf(registry, "coredns_reload_failed_total"), 2);
}

// std::time() may lag behind this clock by a tick of the kernel's.
double secondsOf(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// As the kernel says it in /proc/self/status.
TEST(ProcessMetrics, SayWhatTheProcessUses) {
  const metrics::Registry registry;
  const auto began = std::chrono::system_clock::now();
  const ProcessMetrics metrics(registry.scope(), Logger(), net::DescriptorBudget::make(80));
  const auto before = test_support::valuesOf(registry);
  EXPECT_GE(before.at("process_start_time_seconds"), secondsOf(began));
  EXPECT_LE(before.at("process_start_time_seconds"), secondsOf(std::chrono::system_clock::now()));
  std::vector<char> memory(64 << 20, 1);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/dev/null", "r"), &std::fclose);
  const auto after = test_support::valuesOf(registry);
  EXPECT_GT(after.at("process_cpu_seconds_total"), before.at("process_cpu_seconds_total"));
  EXPECT_GE(after.at("process_resident_memory_bytes"),
            before.at("process_resident_memory_bytes") + static_cast<double>(memory.size() / 2));
  EXPECT_GE(after.at("process_virtual_memory_bytes"), after.at("process_resident_memory_bytes"));
  EXPECT_EQ(after.at("process_open_fds"), before.at("process_open_fds") + 1);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(after.at("process_max_fds"), static_cast<double>(limit.rlim_cur));
}

}  // namespace
}  // namespace idetcd::app
