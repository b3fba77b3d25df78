#include "etcd/completion_thread.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "run_task.h"
#include "runtime/scheduler.h"

namespace idetcd::etcd {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

using runtime::Event;

constexpr auto kForever = std::chrono::nanoseconds::max();

// A copy counts while it lives.
struct Counted {
  explicit Counted(std::atomic<int>& counter) : count(&counter, [](std::atomic<int>* c) { --*c; }) { ++counter; }
  std::shared_ptr<std::atomic<int>> count;
};

TEST(CompletionThread, RunsPostedWorkInOrderOnItsThread) {
  const auto thread = CompletionThread::make().value();
  std::vector<int> order;
  std::promise<bool> on_thread;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(thread->post([&order, i] { order.push_back(i); }));
  thread->post([&] { on_thread.set_value(thread->onThread()); });
  EXPECT_TRUE(on_thread.get_future().get());
  EXPECT_FALSE(thread->onThread());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(CompletionThread, TakesPostsFromManyThreadsAtOnce) {
  const auto thread = CompletionThread::make().value();
  int sum = 0;  // of the completion thread alone
  std::vector<std::thread> posters;
  for (int t = 0; t < 4; ++t) {
    posters.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) thread->post([&sum] { ++sum; });
    });
  }
  for (auto& poster : posters) poster.join();
  std::promise<int> result;
  thread->post([&] { result.set_value(sum); });
  EXPECT_EQ(result.get_future().get(), 8000);
}

TEST(CompletionThread, PostsFromItsOwnThread) {
  const auto thread = CompletionThread::make().value();
  std::promise<int> result;
  thread->post([&] { thread->post([&] { thread->post([&] { result.set_value(3); }); }); });
  EXPECT_EQ(result.get_future().get(), 3);
}

Task<int> addOne(int value) { co_return value + 1; }

Task<int> countTo(int limit) {
  int value = 0;
  while (value < limit) value = co_await addOne(value);
  co_return value;
}

TEST(CompletionThread, AwaitsTasksDeeply) {
  const auto thread = CompletionThread::make().value();
  EXPECT_EQ(await(*thread, countTo(100000)), 100000);
}

TEST(CompletionThread, SleepsAsLongAsAsked) {
  const auto thread = CompletionThread::make().value();
  const auto before = Clock::now();
  EXPECT_TRUE(await(*thread, thread->sleepFor(50ms)));
  EXPECT_GE(Clock::now() - before, 50ms);
  EXPECT_TRUE(await(*thread, thread->sleepFor(0ms)));
  EXPECT_TRUE(await(*thread, thread->sleepFor(-1s)));
}

Task<void> sleepAndNote(CompletionThread& thread, std::chrono::milliseconds duration, std::vector<int>& order) {
  co_await thread.sleepFor(duration);
  order.push_back(static_cast<int>(duration.count()));
}

TEST(CompletionThread, EndsSleepsInTheOrderOfTheirDeadlines) {
  const auto thread = CompletionThread::make().value();
  std::vector<int> order;
  std::vector<std::future<void>> ends;
  for (const int duration : {1500, 500, 1000}) {
    ends.push_back(start(*thread, sleepAndNote(*thread, std::chrono::milliseconds(duration), order)));
  }
  for (auto& end : ends) end.get();
  EXPECT_EQ(order, (std::vector<int>{500, 1000, 1500}));
}

TEST(CompletionThread, StopCutsSleepsShortAndRunsTasksToTheirEnd) {
  std::atomic<int> alive{0};
  std::vector<std::future<bool>> sleeps;
  const auto thread = CompletionThread::make().value();
  const Counted witness(alive);
  const auto sleeper = [](CompletionThread& t, Counted) -> Task<bool> { co_return co_await t.sleepFor(1h); };
  for (int i = 0; i < 10; ++i) sleeps.push_back(start(*thread, sleeper(*thread, witness)));
  sleeps.push_back(start(*thread, thread->sleepFor(kForever)));
  thread->stop();
  for (auto& sleep : sleeps) EXPECT_FALSE(sleep.get());
  EXPECT_EQ(witness.count.use_count(), 1) << "a frame was not destroyed";
  EXPECT_TRUE(thread->stopping());
}

TEST(CompletionThread, ATaskThatWaitsAgainWhileStoppingIsCancelledAtOnce) {
  const auto thread = CompletionThread::make().value();
  const auto stubborn = [](CompletionThread& t) -> Task<int> {
    int refused = 0;
    co_await t.sleepFor(1h);
    for (int i = 0; i < 1000; ++i) {
      const bool slept = co_await t.sleepFor(1h);
      if (!slept) ++refused;
    }
    co_return refused;
  };
  auto result = start(*thread, stubborn(*thread));
  thread->stop();
  EXPECT_EQ(result.get(), 1000);
}

TEST(CompletionThread, RefusesWorkAfterStopAndDestroysItUnstarted) {
  std::atomic<int> alive{0};
  bool started = false;
  const auto thread = CompletionThread::make().value();
  thread->stop();
  const Counted witness(alive);
  const auto task = [](bool& flag, Counted) -> Task<void> {
    flag = true;
    co_return;
  };
  EXPECT_FALSE(thread->spawn(task(started, witness)));
  EXPECT_FALSE(thread->post([&started, witness] { started = true; }));
  EXPECT_FALSE(started);
  EXPECT_EQ(witness.count.use_count(), 1);
}

TEST(CompletionThread, StopIsIdempotentAndMayComeFromSeveralThreads) {
  const auto thread = CompletionThread::make().value();
  auto sleep = start(*thread, thread->sleepFor(1h));
  std::vector<std::thread> stoppers;
  for (int i = 0; i < 4; ++i) stoppers.emplace_back([&] { thread->stop(); });
  for (auto& stopper : stoppers) stopper.join();
  thread->stop();
  EXPECT_FALSE(sleep.get());
}

TEST(CompletionThread, EveryTaskThatWasAcceptedWhileOthersSpawnRunsToItsEnd) {
  for (int round = 0; round < 20; ++round) {
    const auto thread = CompletionThread::make().value();
    std::atomic<int> accepted{0};
    std::atomic<int> ended{0};
    const auto task = [](CompletionThread& t, std::atomic<int>& ends) -> Task<void> {
      co_await t.sleepFor(1h);
      ++ends;
    };
    std::thread spawner([&] {
      while (thread->spawn(task(*thread, ended))) ++accepted;
    });
    while (accepted == 0) std::this_thread::yield();
    thread->stop();
    spawner.join();
    EXPECT_EQ(accepted, ended);
  }
}

TEST(CompletionThread, TasksThatKeepEachOtherBusyDoNotHoldUpTimers) {
  const auto thread = CompletionThread::make().value();
  Event ping(*thread);
  Event pong(*thread);
  bool done = false;
  const auto player = [](Event& mine, Event& other, bool& end) -> Task<void> {
    while (!end) {
      co_await mine.wait(kForever);
      mine.reset();
      other.set();
    }
  };
  const auto whistle = [](CompletionThread& t, bool& end) -> Task<void> {
    co_await t.sleepFor(20ms);
    end = true;
  };
  auto first = start(*thread, player(ping, pong, done));
  auto second = start(*thread, player(pong, ping, done));
  thread->post([&] { ping.set(); });
  await(*thread, whistle(*thread, done));
  first.get();
  second.get();
}

TEST(CompletionThread, TwoTasksPlayPingPong) {
  const auto thread = CompletionThread::make().value();
  Event ping(*thread);
  Event pong(*thread);
  const auto player = [](Event& mine, Event& other, int rounds) -> Task<int> {
    int played = 0;
    for (; played < rounds; ++played) {
      const bool woken = co_await mine.wait(kForever);
      if (!woken) break;
      mine.reset();
      other.set();
    }
    co_return played;
  };
  auto first = start(*thread, player(ping, pong, 5000));
  auto second = start(*thread, player(pong, ping, 5000));
  thread->post([&] { ping.set(); });
  EXPECT_EQ(first.get(), 5000);
  EXPECT_EQ(second.get(), 5000);
}

}  // namespace
}  // namespace idetcd::etcd
