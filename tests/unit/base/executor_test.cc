#include "base/executor.h"

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

using namespace std::chrono_literals;

// Work that stands still, as in a file system that does, until it is let go.
class Stall {
 public:
  ~Stall() { end(); }
  Executor::Work work() {
    return [this] {
      begun_.set_value();
      go_on_.wait();
    };
  }
  void awaitBegin() { begun_.get_future().wait(); }
  void end() {
    if (!ended_) end_.set_value();
    ended_ = true;
  }

 private:
  std::promise<void> begun_;
  std::promise<void> end_;
  std::shared_future<void> go_on_ = end_.get_future().share();
  bool ended_ = false;
};

TEST(ExecutorTest, AStrandKeepsItsOrder) {
  Executor executor;
  const auto strand = executor.makeStrand();
  std::vector<int> done;  // the strand's, so without a lock
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(strand->submit([&done, i] { done.push_back(i); }));
  ASSERT_TRUE(executor.finish(10s));
  ASSERT_EQ(done.size(), 1000u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(done[static_cast<size_t>(i)], i);
}

TEST(ExecutorTest, WhatStandsStillHoldsUpNothingElse) {
  std::array<Stall, 8> stalls;
  Executor executor;
  for (Stall& stall : stalls) {
    ASSERT_TRUE(executor.makeStrand()->submit(stall.work()));
    stall.awaitBegin();
  }
  std::promise<void> other;
  ASSERT_TRUE(executor.makeStrand()->submit([&] { other.set_value(); }));
  other.get_future().wait();
  std::promise<void> timed;
  ASSERT_TRUE(executor.makeStrand()->submitAfter(1ms, [&] { timed.set_value(); }));
  timed.get_future().wait();
  for (Stall& stall : stalls) stall.end();
  EXPECT_TRUE(executor.finish(10s));
}

TEST(ExecutorTest, HasNoMoreThreadsThanItMayHave) {
  Stall stall;
  Executor executor(1);
  ASSERT_TRUE(executor.submit(stall.work()));
  stall.awaitBegin();
  std::atomic<bool> done{false};
  ASSERT_TRUE(executor.submit([&] { done = true; }));
  EXPECT_FALSE(executor.finish(20ms));
  EXPECT_FALSE(done);
  stall.end();
  EXPECT_TRUE(executor.finish(10s)) << "what was submitted before is done";
  EXPECT_TRUE(done);
}

TEST(ExecutorTest, TakesNothingAfterTheEnd) {
  auto executor = std::make_unique<Executor>();
  const auto strand = executor->makeStrand();
  bool called = false;
  ASSERT_TRUE(strand->submitAfter(1h, [&] { called = true; }));
  ASSERT_TRUE(executor->finish(10s)) << "what waits for its time is dropped";
  EXPECT_FALSE(executor->submit([] {}));
  executor.reset();
  EXPECT_FALSE(strand->submit([] {}));
  EXPECT_FALSE(strand->submitAfter(1ms, [] {}));
  EXPECT_FALSE(called);
}

TEST(ExecutorTest, TimedWorkComesInItsTime) {
  Executor executor;
  std::promise<void> last;
  std::vector<int> order;
  const auto strand = executor.makeStrand();
  strand->submitAfter(1s, [&] {
    order.push_back(2);
    last.set_value();
  });
  strand->submitAfter(1ms, [&] { order.push_back(1); });
  last.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(ExecutorTest, LargeObjectsAreFreedOnIt) {
  struct Large {
    explicit Large(std::promise<std::thread::id>& to) : freed_on(to) {}
    ~Large() { freed_on.set_value(std::this_thread::get_id()); }
    std::promise<std::thread::id>& freed_on;
  };
  const auto executor = std::make_shared<Executor>();
  std::promise<std::thread::id> freed_on;
  freedOn(executor, std::make_unique<Large>(freed_on)).reset();
  EXPECT_NE(freed_on.get_future().get(), std::this_thread::get_id());
  executor->finish(10s);
  std::promise<std::thread::id> freed_late;
  freedOn(executor, std::make_unique<Large>(freed_late)).reset();
  EXPECT_EQ(freed_late.get_future().get(), std::this_thread::get_id()) << "it is freed in any case";
}

TEST(ExecutorTest, ManySubmitFromEverywhere) {
  Executor executor(4);
  std::atomic<int> done{0};
  std::vector<std::thread> submitters;
  for (int t = 0; t < 4; ++t) {
    submitters.emplace_back([&] {
      const auto strand = executor.makeStrand();
      for (int i = 0; i < 2000; ++i) {
        strand->submit([&] { ++done; });
        executor.submit([&] { ++done; });
      }
    });
  }
  for (std::thread& submitter : submitters) submitter.join();
  ASSERT_TRUE(executor.finish(30s));
  EXPECT_EQ(done, 4 * 2000 * 2);
}

}  // namespace
}  // namespace idetcd
