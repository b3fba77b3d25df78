#include "app/watchdog.h"

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace idetcd::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kLimit = 20ms;

// A first loop with a watchdog, and another one, each on its thread.
class WatchdogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    threads_[0] = std::thread([this] { first_.run(); });
    threads_[1] = std::thread([this] { other_.run(); });
    onFirst([this] {
      watchdog_ = std::make_unique<Watchdog>(first_, kLimit, [this] { signs_.fetch_add(1); });
      watchdog_->watch({&first_, &other_});
    });
  }
  void TearDown() override {
    onFirst([this] { watchdog_.reset(); });
    for (net::EventLoop* loop : {&first_, &other_}) loop->stop();
    for (std::thread& thread : threads_) thread.join();
  }
  void onFirst(const std::function<void()>& work) {
    std::promise<void> done;
    first_.post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  void waitForSign() {
    const size_t before = signs_;
    while (signs_ == before) std::this_thread::yield();
  }

  net::EventLoop first_;
  net::EventLoop other_;
  std::array<std::thread, 2> threads_;
  std::unique_ptr<Watchdog> watchdog_;
  std::atomic<size_t> signs_{0};
};

TEST_F(WatchdogTest, GivesSignsWhileAllLoopsTurn) {
  for (int i = 0; i < 3; ++i) waitForSign();
}

TEST_F(WatchdogTest, ALoopThatStandsStillEndsThem) {
  waitForSign();
  std::promise<void> reached;
  std::promise<void> released;
  other_.post([&] {
    reached.set_value();
    released.get_future().wait();
  });
  reached.get_future().wait();
  std::this_thread::sleep_for(kLimit);  // what is under way is over
  const size_t before = signs_;
  std::this_thread::sleep_for(5 * kLimit);  // meant as such: nothing must come
  EXPECT_LE(signs_, before + 1) << "one that all loops had answered for";
  released.set_value();
  waitForSign();
}

TEST_F(WatchdogTest, AnswersThatComeAfterItsEndAreNotWanted) {
  std::promise<void> released;
  other_.post([&] { released.get_future().wait(); });
  std::this_thread::sleep_for(kLimit);  // so that a question waits there
  onFirst([this] { watchdog_.reset(); });
  const size_t before = signs_;
  released.set_value();
  std::promise<void> passed;
  other_.post([&] { first_.post([&] { passed.set_value(); }); });
  passed.get_future().wait();
  EXPECT_EQ(signs_, before);
}

}  // namespace
}  // namespace idetcd::app
