#include "base/metrics.h"

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/metric_values.h"

namespace idetcd::metrics {
namespace {

using test_support::sumOf;
using test_support::valuesOf;
using Values = std::map<std::string, double>;

static_assert(isValidName(Kind::kCounter, "idetcd_udp_received_total"));
static_assert(isValidName(Kind::kGauge, "idetcd:cache_bytes"));
static_assert(isValidName(Kind::kHistogram, "idetcd_request_duration_seconds"));
static_assert(!isValidName(Kind::kCounter, "idetcd_udp_received"), "a counter ends with _total");
static_assert(!isValidName(Kind::kGauge, "idetcd_entries_total"), "and nothing else does");
static_assert(!isValidName(Kind::kCounter, "idetcd_wait_ms_total"), "seconds are the base unit");
static_assert(!isValidName(Kind::kGauge, "idetcd_wait_milliseconds"));
static_assert(!isValidName(Kind::kHistogram, "idetcd_size_bucket"), "a suffix of the exposition format");
static_assert(!isValidName(Kind::kGauge, "9lives") && !isValidName(Kind::kGauge, "") &&
              !isValidName(Kind::kGauge, "a-b") && !isValidName(Kind::kGauge, "é"));
static_assert(isValidLabelName("worker") && !isValidLabelName("le") && !isValidLabelName("__name__") &&
              !isValidLabelName("a:b") && !isValidLabelName(""));

struct Some : Group {
  using Group::Group;
  Counter asked{*this, "test_asked_total", "Questions."};
  Gauge waiting{*this, "test_waiting", "What waits."};
};
static_assert(alignof(Some) == 64 && sizeof(Some) % 64 == 0, "no two loops write one cache line");

constexpr std::array<uint64_t, 3> kBounds{250'000, 500'000, 1'000'000};
struct Durations : Group {
  using Group::Group;
  Histogram seconds{*this, "test_duration_seconds", "How long it took.", kBounds, 1e9};
};

struct Buckets {
  Family family;
  std::vector<uint64_t> buckets;
  double sum = 0;
  double count = 0;
};
Buckets histogramOf(const Registry& registry) {
  Buckets found;
  registry.visit([&found](const Sample& sample) {
    found = {.family = sample.family,
             .buckets = {sample.buckets.begin(), sample.buckets.end()},
             .sum = sample.sum,
             .count = sample.value};
  });
  return found;
}

TEST(Metrics, CountWithoutARegistry) {
  Some some;
  some.asked.add();
  some.asked.add(4);
  some.waiting.set(2.5);
  some.waiting.add(-1);
  EXPECT_EQ(some.asked.value(), 5u);
  EXPECT_EQ(some.waiting.value(), 1.5);
}

TEST(Metrics, ASeriesIsTheSumOfItsMetrics) {
  const Registry registry;
  Some first(registry.scope());
  Some second(registry.scope());
  first.asked.add(3);
  second.asked.add(4);
  first.waiting.set(1);
  second.waiting.set(2);
  EXPECT_EQ(valuesOf(registry), (Values{{"test_asked_total", 7}, {"test_waiting", 3}}));
}

TEST(Metrics, LabelsTellSeriesApart) {
  const Registry registry;
  const Scope zone = registry.scope().with("zone", "a.b.");
  Some first(zone.with("worker", "0"));
  Some second(zone.with("worker", "1"));
  Some again(zone.with("worker", "1"));
  first.asked.add(1);
  second.asked.add(2);
  again.asked.add(4);
  const Values values = valuesOf(registry);
  EXPECT_EQ(values.at("test_asked_total{zone=\"a.b.\",worker=\"0\"}"), 1);
  EXPECT_EQ(values.at("test_asked_total{zone=\"a.b.\",worker=\"1\"}"), 6);
  EXPECT_EQ(values.size(), 4u);
}

TEST(Metrics, AFamilyHasItsHelpAndKind) {
  const Registry registry;
  const Some some(registry.scope().with("worker", "0"));
  std::map<std::string, Family> families;
  registry.visit([&families](const Sample& sample) { families[sample.family.name] = sample.family; });
  EXPECT_EQ(families.at("test_asked_total").help, "Questions.");
  EXPECT_EQ(families.at("test_asked_total").kind, Kind::kCounter);
  EXPECT_EQ(families.at("test_waiting").kind, Kind::kGauge);
  EXPECT_EQ(families.at("test_waiting").label_names, std::vector<std::string>{"worker"});
}

// A reload replaces who counts; a series that went back would be taken for a restart of the process.
TEST(Metrics, WhatWasCountedStaysWhenTheCounterGoes) {
  const Registry registry;
  std::optional<Some> old(std::in_place, registry.scope());
  old->asked.add(3);
  old->waiting.set(7);
  Some next(registry.scope());
  next.asked.add(1);
  old.reset();
  EXPECT_EQ(valuesOf(registry), (Values{{"test_asked_total", 4}, {"test_waiting", 0}}));
}

TEST(Metrics, AGaugeGoesWithItsOwner) {
  const Registry registry;
  { const Some some(registry.scope()); }
  EXPECT_EQ(valuesOf(registry), (Values{{"test_asked_total", 0}}));
}

TEST(Metrics, FunctionsAreAskedWhenTheyAreRead) {
  const Registry registry;
  double number = 1;
  {
    const GaugeFunction gauge(registry.scope(), "test_open", "What is open.", [&number] { return number; });
    const CounterFunction counter(registry.scope(), "test_lost_total", "What was lost.", [&number] { return number; });
    number = 5;
    EXPECT_EQ(valuesOf(registry), (Values{{"test_lost_total", 5}, {"test_open", 5}}));
  }
  number = 6;
  EXPECT_EQ(valuesOf(registry), (Values{{"test_lost_total", 5}})) << "as it was last";
}

TEST(Metrics, AHistogramCountsByBounds) {
  const Registry registry;
  Durations durations(registry.scope());
  for (const uint64_t value : {0, 250'000, 250'001, 1'000'000, 1'000'001, 5'000'000}) durations.seconds.observe(value);
  EXPECT_EQ(durations.seconds.count(), 6u);
  EXPECT_EQ(durations.seconds.sum(), 7'500'002u);
  const Buckets found = histogramOf(registry);
  EXPECT_EQ(found.family.bounds, (std::vector<double>{0.00025, 0.0005, 0.001})) << "to the last bit";
  EXPECT_EQ(found.buckets, (std::vector<uint64_t>{2, 1, 1, 2})) << "what is equal to a bound is within it";
  EXPECT_EQ(found.count, 6);
  EXPECT_DOUBLE_EQ(found.sum, 0.007500002);
}

TEST(Metrics, HistogramsAddUpAndStay) {
  const Registry registry;
  Durations stays(registry.scope());
  {
    Durations goes(registry.scope());
    goes.seconds.observe(1);
    goes.seconds.observe(600'000);
  }
  stays.seconds.observe(2'000'000);
  EXPECT_EQ(histogramOf(registry).buckets, (std::vector<uint64_t>{1, 0, 1, 1}));
  EXPECT_DOUBLE_EQ(histogramOf(registry).sum, 0.002600001);
}

TEST(Metrics, AMetricMayOutliveItsRegistry) {
  std::optional<Registry> registry(std::in_place);
  Some some(registry->scope());
  registry.reset();
  some.asked.add();
  EXPECT_EQ(some.asked.value(), 1u);
}

// Nothing is locked while the visitor is called.
TEST(Metrics, AVisitorMayMakeMetrics) {
  const Registry registry;
  const Some some(registry.scope());
  size_t series = 0;
  registry.visit([&](const Sample&) {
    ++series;
    Some more(registry.scope());
    more.asked.add();
  });
  EXPECT_EQ(series, 2u);
  EXPECT_EQ(sumOf(registry, "test_asked_total"), 2);
}

TEST(MetricsDeathTest, OneFamilyHasOneMeaning) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const Registry registry;
  const Some some(registry.scope());
  EXPECT_DEATH(Counter(registry.scope(), "test_asked_total", "Something else."), "test_asked_total: .* another help");
  EXPECT_DEATH(Counter(registry.scope().with("worker", "0"), "test_asked_total", "Questions."), "other labels");
  const Durations durations(registry.scope());
  constexpr std::array<uint64_t, 1> kOther{1};
  EXPECT_DEATH(Histogram(durations, "test_duration_seconds", "How long it took.", kOther, 1e9), "other bounds");
  constexpr std::array<uint64_t, 2> kEqual{1, 1};
  EXPECT_DEATH(Histogram(durations, "test_other_seconds", "How long it took.", kEqual), "its bounds");
}

// Loops write, others come and go as at a reload, and a thread reads all the time: no series ever goes back, and in the
// end nothing is missing.
TEST(Metrics, AreReadWhileTheyAreWrittenMadeAndRemoved) {
  constexpr int kWriters = 3;
  constexpr int kLives = 300;
  constexpr int kWrites = 200;
  const Registry registry;
  std::atomic<int> running{kWriters};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (int life = 0; life < kLives; ++life) {
        const Scope scope = registry.scope().with("worker", std::to_string(writer % 2));
        Some some(scope);
        Durations durations(scope);
        const auto read = std::make_unique<double>(1);
        const GaugeFunction function(scope, "test_function", "What it says.", [&read] { return *read; });
        for (int i = 0; i < kWrites; ++i) {
          some.asked.add();
          some.waiting.set(i);
          durations.seconds.observe(300'000);
        }
      }
      --running;
    });
  }
  Values last;
  const auto look = [&registry, &last] {
    registry.visit([&last](const Sample& sample) {
      if (sample.family.kind == Kind::kGauge) return;
      uint64_t in_buckets = 0;
      for (const uint64_t bucket : sample.buckets) in_buckets += bucket;
      if (sample.family.kind == Kind::kHistogram) {
        EXPECT_EQ(static_cast<double>(in_buckets), sample.value);
      }
      double& before = last[sample.family.name + sample.label_values[0]];
      EXPECT_GE(sample.value, before);
      before = sample.value;
    });
  };
  while (running > 0) look();
  for (std::thread& writer : writers) writer.join();
  look();
  EXPECT_EQ(sumOf(registry, "test_asked_total"), kWriters * kLives * kWrites);
  EXPECT_EQ(sumOf(registry, "test_duration_seconds"), kWriters * kLives * kWrites);
  EXPECT_EQ(sumOf(registry, "test_function"), 0) << "they are gone";
}

}  // namespace
}  // namespace idetcd::metrics
