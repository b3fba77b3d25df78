#include "runtime/scheduler.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "support/manual_scheduler.h"

namespace idetcd::runtime {
namespace {

using namespace std::chrono_literals;
using test_support::ManualScheduler;

constexpr auto kForever = std::chrono::nanoseconds::max();

Task<void> sleepAndNote(Scheduler& scheduler, std::chrono::nanoseconds duration, int id, std::vector<int>& order) {
  const bool slept = co_await scheduler.sleepFor(duration);
  order.push_back(slept ? id : -id);
}

TEST(Scheduler, ASpawnedTaskRunsFromTheLoop) {
  ManualScheduler scheduler;
  std::vector<int> order;
  EXPECT_TRUE(scheduler.spawn(sleepAndNote(scheduler, 0s, 1, order)));
  EXPECT_TRUE(order.empty());
  scheduler.run();
  EXPECT_EQ(order, std::vector<int>{1});
  EXPECT_TRUE(scheduler.isIdle());
}

TEST(Scheduler, SleepsEndInTheOrderOfTheirDeadlinesAndOfTheirBeginning) {
  ManualScheduler scheduler;
  std::vector<int> order;
  scheduler.spawn(sleepAndNote(scheduler, 60s, 1, order));
  for (int id = 2; id < 10; ++id) scheduler.spawn(sleepAndNote(scheduler, 20s, id, order));
  scheduler.spawn(sleepAndNote(scheduler, -1s, 10, order));
  scheduler.advance(19s);
  EXPECT_EQ(order, std::vector<int>{10});
  scheduler.advance(1s);
  EXPECT_EQ(order, (std::vector<int>{10, 2, 3, 4, 5, 6, 7, 8, 9}));
  scheduler.advance(40s);
  EXPECT_EQ(order.back(), 1);
  EXPECT_TRUE(scheduler.isIdle());
}

TEST(Scheduler, AStopEndsEveryWaitInTheOrderOfTheirBeginning) {
  ManualScheduler scheduler;
  std::vector<int> order;
  scheduler.spawn(sleepAndNote(scheduler, kForever, 1, order));
  scheduler.spawn(sleepAndNote(scheduler, 2s, 2, order));
  scheduler.spawn(sleepAndNote(scheduler, 1s, 3, order));
  scheduler.run();
  scheduler.stop();
  EXPECT_EQ(order, (std::vector<int>{-1, -2, -3}));
  EXPECT_TRUE(scheduler.isIdle());
  EXPECT_FALSE(scheduler.spawn(sleepAndNote(scheduler, 1s, 4, order))) << "destroyed unstarted";
  EXPECT_EQ(order.size(), 3u);
}

// --- Suspension ---

Task<void> waitFor(Suspension& pause, std::vector<Suspension::WakeReason>& outcomes) {
  outcomes.push_back(co_await pause);
}

TEST(Suspension, TheFirstOfWakeDeadlineAndStopDecides) {
  using WakeReason = Suspension::WakeReason;
  ManualScheduler scheduler;
  std::vector<WakeReason> outcomes;
  Suspension woken(scheduler, scheduler.now() + 1s);
  scheduler.spawn(waitFor(woken, outcomes));
  scheduler.run();
  woken.wake();
  EXPECT_TRUE(outcomes.empty()) << "not within wake()";
  scheduler.advance(2s);
  EXPECT_EQ(outcomes, std::vector<WakeReason>{WakeReason::kWoken});

  Suspension late(scheduler, scheduler.now() + 1s);
  scheduler.spawn(waitFor(late, outcomes));
  scheduler.advance(1s);
  late.wake();
  EXPECT_EQ(outcomes.back(), WakeReason::kTimedOut);

  Suspension early(scheduler, std::nullopt);
  early.wake();
  scheduler.spawn(waitFor(early, outcomes));
  scheduler.run();
  EXPECT_EQ(outcomes.back(), WakeReason::kWoken);

  Suspension stopped(scheduler, std::nullopt);
  scheduler.spawn(waitFor(stopped, outcomes));
  scheduler.stop();
  EXPECT_EQ(outcomes.back(), WakeReason::kStopped);
  EXPECT_EQ(outcomes.size(), 4u);
}

// --- Event ---

Task<void> waitFor(Event& event, std::chrono::nanoseconds timeout, std::vector<bool>& results) {
  results.push_back(co_await event.wait(timeout));
}

TEST(Event, WakesEveryWaiterAndStaysSet) {
  ManualScheduler scheduler;
  Event event(scheduler);
  std::vector<bool> results;
  for (int i = 0; i < 5; ++i) scheduler.spawn(waitFor(event, kForever, results));
  scheduler.run();
  EXPECT_FALSE(event.isSet());
  event.set();
  event.set();
  EXPECT_TRUE(results.empty()) << "never within set()";
  scheduler.run();
  EXPECT_EQ(results, std::vector<bool>(5, true));
  scheduler.spawn(waitFor(event, 0s, results));
  scheduler.run();
  EXPECT_TRUE(results.back());
  event.reset();
  scheduler.spawn(waitFor(event, 1s, results));
  scheduler.advance(1s);
  EXPECT_FALSE(results.back());
  EXPECT_EQ(results.size(), 7u);
}

TEST(Event, SetThenResetStillWakesWhoWaited) {
  ManualScheduler scheduler;
  Event event(scheduler);
  std::vector<bool> results;
  scheduler.spawn(waitFor(event, kForever, results));
  scheduler.run();
  event.set();
  event.reset();
  scheduler.run();
  EXPECT_EQ(results, std::vector<bool>{true});
}

TEST(Event, ATimeOutLeavesNothingBehind) {
  ManualScheduler scheduler;
  Event event(scheduler);
  std::vector<bool> results;
  scheduler.spawn(waitFor(event, 10s, results));
  scheduler.advance(10s);
  EXPECT_EQ(results, std::vector<bool>{false});
  event.set();
  scheduler.run();
  EXPECT_EQ(results.size(), 1u);
}

TEST(Event, StopEndsWaits) {
  ManualScheduler scheduler;
  Event event(scheduler);
  std::vector<bool> results;
  scheduler.spawn(waitFor(event, kForever, results));
  scheduler.spawn(waitFor(event, 3600s, results));
  scheduler.stop();
  EXPECT_EQ(results, std::vector<bool>(2, false));
}

}  // namespace
}  // namespace idetcd::runtime
