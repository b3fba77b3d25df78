// The numbers of all loops, as JSON.
#include "control/traffic.h"

#include <string>

#include <gtest/gtest.h>

#include "net/event_loop.h"
#include "records/epoch.h"
#include "resolve/router.h"
#include "support/query_fixture.h"

namespace idetcd::control {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr int64_t kStart = 1000;             // by BootClock
constexpr double kUnixStart = 1700000000.5;  // then

class TrafficTest : public ::testing::Test {
 protected:
  static Traffic::Now after(std::chrono::duration<double> time) {
    const BootClock::time_point start{std::chrono::seconds(kStart)};
    return {.boot = start + std::chrono::duration_cast<std::chrono::nanoseconds>(time),
            .unix_seconds = kUnixStart + time.count()};
  }
  // Answers a query with `rcode`, `time` after the start.
  void answer(std::chrono::duration<double> time, const std::string& name, uint8_t rcode = 0, size_t worker = 0,
              std::chrono::nanoseconds duration = 1ms) {
    Message message(name, 1);
    resolve::Job job;
    job.outcome = dns::parseQuery(message.data(), message.size(), HashSeed(Message::kSeed), job.query);
    message.data()[2] |= 0x80;
    message.data()[3] = rcode;
    resolve::BatchCounts counts{.queries = 1};
    counts.addAnswer(message.data());
    process_.state<resolve::LoopSamples>().of(worker)->onBatchDone({&job, 1}, counts, duration, after(time).boot);
  }

  records::EpochDomain epochs_;
  net::EventLoop loop_;
  resolve::Process process_{Logger(), loop_, epochs_};
  Traffic traffic_{process_, after(0s)};
};

TEST_F(TrafficTest, BeforeTheFirstSecondIsOverThereIsNothing) {
  answer(100ms, "a.example.");
  EXPECT_EQ(traffic_.history(0, after(500ms))["seconds"], json::array());
  const json top = traffic_.top(10, after(500ms));
  EXPECT_EQ(top, json::parse(R"({"seconds": 0, "rate": 0.0, "p50_seconds": null, "p99_seconds": null, "sampled": 0,
                                 "names": [], "rcodes": {}})"));
  EXPECT_EQ(traffic_.recent(after(500ms))["rate"], 0);
}

TEST_F(TrafficTest, HistoryIsASecondEach) {
  answer(100ms, "a.example.");
  answer(900ms, "a.example.", 2, 1);
  answer(2100ms, "a.example.", 0, 0, 10ms);
  const json all = traffic_.history(0, after(3500ms));
  EXPECT_EQ(all["now"], kUnixStart + 3.5);
  ASSERT_EQ(all["seconds"].size(), 3u);
  const json& first = all["seconds"][0];
  EXPECT_EQ(first["at"], 1700000000);
  EXPECT_EQ(first["queries"], 2) << "of both loops";
  EXPECT_EQ(first["failures"], 1);
  EXPECT_NEAR(first["p50_seconds"], 0.001, 0.0003);
  const json& second = all["seconds"][1];
  EXPECT_EQ(second["at"], 1700000001);
  EXPECT_EQ(second["queries"], 0);
  EXPECT_TRUE(second["p99_seconds"].is_null());
  EXPECT_NEAR(all["seconds"][2]["p99_seconds"], 0.01, 0.003);

  EXPECT_EQ(traffic_.history(1700000001, after(3500ms))["seconds"].size(), 1u);
  EXPECT_EQ(traffic_.history(1700000002, after(3500ms))["seconds"].size(), 0u);
  EXPECT_EQ(traffic_.history(0, after(3h))["seconds"].size(), 600u);
}

TEST_F(TrafficTest, ASecondIsOverAMomentLater) {
  EXPECT_EQ(traffic_.history(0, after(1001ms))["seconds"].size(), 0u);
  EXPECT_EQ(traffic_.history(0, after(1051ms))["seconds"].size(), 1u);
}

TEST_F(TrafficTest, ASecondKeepsItsTimeUnlessTheClockIsSet) {
  const auto first_at = [this](Traffic::Now now) {
    return traffic_.history(0, now)["seconds"][0]["at"].get<int64_t>();
  };
  Traffic::Now now = after(2s);
  now.unix_seconds += 0.7;  // which goes too fast
  EXPECT_EQ(first_at(now), 1700000000);
  now.unix_seconds += 3600;
  EXPECT_EQ(first_at(now), 1700003601);
}

TEST_F(TrafficTest, QuantilesAreOfAllQueries) {
  for (int i = 0; i < 98; ++i) answer(100ms, "a.example.", 0, 0, 100us);
  answer(100ms, "a.example.", 0, 1, 1s);
  answer(100ms, "a.example.", 0, 1, 1s);
  const json recent = traffic_.recent(after(5100ms));
  EXPECT_EQ(recent["seconds"], 5);
  EXPECT_EQ(recent["rate"], 20);
  EXPECT_NEAR(recent["p50_seconds"], 0.0001, 0.00003);
  EXPECT_NEAR(recent["p99_seconds"], 1, 0.3);
}

TEST_F(TrafficTest, TheBusiestNamesComeFirst) {
  answer(100ms, "old.example.");
  for (int i = 0; i < 6; ++i) answer(5s, "Busy.example.");
  for (int i = 0; i < 3; ++i) answer(5s, "calm.example.", 3, 1);
  answer(6s, "failed.example.", 2);
  const json top = traffic_.top(5, after(7100ms));
  EXPECT_EQ(top["seconds"], 5);
  EXPECT_EQ(top["rate"], 2);
  EXPECT_EQ(top["sampled"], 10);
  ASSERT_EQ(top["names"].size(), 3u);
  EXPECT_EQ(top["names"][0], json::parse(R"({"name": "busy.example.", "type": "A", "share": 0.6, "rate": 1.2})"));
  EXPECT_EQ(top["names"][1]["name"], "calm.example.");
  EXPECT_EQ(top["rcodes"], json::parse(R"({"NOERROR": 0.6, "NXDOMAIN": 0.3, "SERVFAIL": 0.1})"));
  EXPECT_EQ(traffic_.top(1000000, after(7100ms))["sampled"], 11) << "since the start";
}

TEST_F(TrafficTest, AHundredNamesAtMost) {
  for (int i = 0; i < 120; ++i) answer(100ms, std::to_string(i) + ".example.");
  EXPECT_EQ(traffic_.top(10, after(2s))["names"].size(), 100u);
}

TEST_F(TrafficTest, IsASectionOfTheStatus) {
  auto& control = process_.state<Control>();
  for (int configuration = 0; configuration < 2; ++configuration) {
    control.begin();
    process_.state<Traffic>().addTo(control);
    control.accept();
    EXPECT_TRUE(control.report()["queries"]["rate"].is_number());
  }
}

}  // namespace
}  // namespace idetcd::control
