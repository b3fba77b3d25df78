// The answers of a loop in each second, and its samples.
#include "resolve/query_samples.h"

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "resolve/router.h"
#include "support/query_fixture.h"

namespace idetcd::resolve {
namespace {

using namespace std::chrono_literals;

constexpr BootClock::time_point at(int64_t second) { return BootClock::time_point(std::chrono::seconds(second)); }

// A query that was answered with `rcode`, in its buffer.
class Answered {
 public:
  explicit Answered(const std::string& name, uint16_t type = 1, uint8_t rcode = 0) : message_(name, type) {
    job.outcome = dns::parseQuery(message_.data(), message_.size(), HashSeed(Message::kSeed), job.query);
    message_.data()[2] |= 0x80;
    message_.data()[3] = rcode;
  }
  Answered(const Answered&) = delete;
  Answered& operator=(const Answered&) = delete;

  void onBatchDone(QuerySamples& samples, BootClock::time_point now, std::chrono::nanoseconds duration = 1ms) const {
    BatchCounts counts{.queries = 1};
    counts.addAnswer(job.query.message);
    samples.onBatchDone({&job, 1}, counts, duration, now);
  }

  Job job;

 private:
  Message message_;
};

QuerySamples::Sums sumsOf(const QuerySamples& samples, int64_t second) {
  QuerySamples::Sums sums;
  samples.read(second, sums);
  return sums;
}

// The weight of each name.
std::map<std::string, uint64_t> namesOf(const QuerySamples& samples, int64_t first, int64_t last) {
  std::map<std::string, uint64_t> names;
  samples.visit(first, last, [&names](const QuerySamples::Sample& sample) {
    names[dns::Name::fromWire(sample.name).toString()] += sample.weight;
  });
  return names;
}

TEST(QuerySamplesTest, DurationsAreInTheBucketThatHoldsThem) {
  EXPECT_EQ(QuerySamples::bucketOf(-1ns), 0u);
  EXPECT_EQ(QuerySamples::bucketOf(1023ns), 0u);
  for (size_t bucket = 1; bucket < QuerySamples::kBuckets; ++bucket) {
    const std::chrono::nanoseconds low(QuerySamples::lowerBound(bucket));
    EXPECT_EQ(QuerySamples::bucketOf(low), bucket);
    EXPECT_EQ(QuerySamples::bucketOf(low - 1ns), bucket - 1);
  }
  EXPECT_EQ(QuerySamples::bucketOf(1h), QuerySamples::kBuckets - 1);
}

TEST(QuerySamplesTest, EachSecondIsCounted) {
  QuerySamples samples;
  const Answered good("a.example.", 1);
  const Answered failed("b.example.", 28, 2);
  const Answered missing("c.example.", 1, 3);  // NXDOMAIN shares a bit with SERVFAIL
  good.onBatchDone(samples, at(100), 1ms);
  failed.onBatchDone(samples, at(100) + 999ms, 2ms);
  missing.onBatchDone(samples, at(102), 1ms);
  EXPECT_EQ(sumsOf(samples, 100).queries, 2u);
  EXPECT_EQ(sumsOf(samples, 100).failures, 1u);
  EXPECT_EQ(sumsOf(samples, 100).durations[QuerySamples::bucketOf(1ms)], 1u);
  EXPECT_EQ(sumsOf(samples, 100).durations[QuerySamples::bucketOf(2ms)], 1u);
  EXPECT_EQ(sumsOf(samples, 101).queries, 0u);
  EXPECT_EQ(sumsOf(samples, 102).queries, 1u);
  EXPECT_EQ(sumsOf(samples, 102).failures, 0u);
}

TEST(QuerySamplesTest, TheLastTenMinutesAreKept) {
  QuerySamples samples;
  const Answered query("a.example.");
  for (int64_t second = 1000; second <= 3000; ++second) query.onBatchDone(samples, at(second));
  uint64_t queries = 0;
  for (int64_t second = 3000 - QuerySamples::kSeconds; second <= 3000; ++second) {
    queries += sumsOf(samples, second).queries;
  }
  EXPECT_EQ(queries, QuerySamples::kSeconds + 1);
  EXPECT_EQ(sumsOf(samples, 1000).queries, 0u) << "another second has its place";
}

TEST(QuerySamplesTest, AFewQueriesAreAllSampled) {
  QuerySamples samples;
  const Answered a("A.example.", 1);
  const Answered b("b.example.", 28, 3);
  for (int i = 0; i < 3; ++i) a.onBatchDone(samples, at(100));
  b.onBatchDone(samples, at(101));
  EXPECT_EQ(namesOf(samples, 100, 101), (std::map<std::string, uint64_t>{{"a.example.", 3}, {"b.example.", 1}}));
  EXPECT_EQ(namesOf(samples, 101, 200), (std::map<std::string, uint64_t>{{"b.example.", 1}}));
  samples.visit(101, 101, [](const QuerySamples::Sample& sample) {
    EXPECT_EQ(sample.type, 28);
    EXPECT_EQ(sample.rcode, 3);
  });
}

TEST(QuerySamplesTest, WhatHasNoAnswerIsNotSampled) {
  QuerySamples samples;
  Message message("a.example.", 1);
  Job pending;
  pending.outcome = dns::parseQuery(message.data(), message.size(), HashSeed(Message::kSeed), pending.query);
  const Job dropped{};
  samples.onBatchDone({&pending, 1}, {.queries = 1}, 1ms, at(100));
  samples.onBatchDone({&dropped, 1}, {.queries = 1}, 1ms, at(100));
  EXPECT_EQ(sumsOf(samples, 100).queries, 2u);
  EXPECT_TRUE(namesOf(samples, 100, 100).empty());
}

TEST(QuerySamplesTest, ALaterAnswerIsTimedOnItsOwn) {
  QuerySamples samples;
  const Answered answered("late.example.", 1, 2);
  samples.onLateAnswer(answered.job.query, at(100), at(103));
  const auto sums = sumsOf(samples, 103);
  EXPECT_EQ(sums.queries, 0u) << "it was counted when it came";
  EXPECT_EQ(sums.failures, 1u);
  EXPECT_EQ(sums.durations[QuerySamples::bucketOf(3s)], 1u);
  EXPECT_EQ(namesOf(samples, 103, 103), (std::map<std::string, uint64_t>{{"late.example.", 1}}));
}

TEST(QuerySamplesTest, ManyQueriesAreSampledByTheirRate) {
  QuerySamples samples;
  const Answered often("often.example.");
  const Answered rare("rare.example.");
  constexpr int kQueries = 100000;
  for (int64_t second = 100; second < 103; ++second) {
    for (int i = 0; i < kQueries; ++i) (i % 10 == 0 ? rare : often).onBatchDone(samples, at(second));
  }
  size_t taken = 0;
  samples.visit(102, 102, [&taken](const auto&) { ++taken; });
  EXPECT_GE(taken, QuerySamples::kSamplesASecond);
  EXPECT_LE(taken, 2 * QuerySamples::kSamplesASecond);
  size_t first = 0;
  samples.visit(100, 100, [&first](const auto&) { ++first; });
  EXPECT_LE(first, 4 * QuerySamples::kSamplesASecond) << "before the rate is known";
  uint64_t weight = 0;
  for (const auto& [name, of_name] : namesOf(samples, 102, 102)) weight += of_name;
  EXPECT_NEAR(static_cast<double>(weight), kQueries, kQueries * 0.02);
}

TEST(QuerySamplesTest, WhatIsOverwrittenIsLeftOut) {
  QuerySamples samples;
  const std::string label(60, 'x');
  const Answered query(label + '.' + label + '.' + label + '.' + label + '.');
  for (int64_t second = 100; second < 400; ++second) {
    for (int i = 0; i < 100; ++i) query.onBatchDone(samples, at(second));
  }
  EXPECT_TRUE(namesOf(samples, 100, 380).empty());
  EXPECT_EQ(namesOf(samples, 395, 399).begin()->second, 500u);
}

TEST(QuerySamplesTest, IsReadWhileItIsWritten) {
  QuerySamples samples;
  const Answered query("a.example.");
  std::atomic<int64_t> second{1};
  std::thread writer([&] {
    for (; second < 3000; ++second) {
      for (int i = 0; i < 40; ++i) query.onBatchDone(samples, at(second));
    }
  });
  while (second < 3000) {
    const int64_t now = second;
    for (const int64_t old : {now - QuerySamples::kSeconds - 3, now - 1}) {
      if (old < 1) continue;
      const uint64_t queries = sumsOf(samples, old).queries;
      EXPECT_TRUE(queries == 0 || queries == 40) << queries;
    }
    samples.visit(std::max<int64_t>(now - QuerySamples::kSeconds, 1), now, [](const QuerySamples::Sample& sample) {
      EXPECT_EQ(sample.name.size(), 11u);
      EXPECT_EQ(sample.weight, 1u);
    });
  }
  writer.join();
}

}  // namespace
}  // namespace idetcd::resolve
