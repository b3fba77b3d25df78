// The files are a string here, and what a reload comes to is said by the test; the times are short.
#include "directive/reload/corefile_watch.h"

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include <gtest/gtest.h>

#include "net/event_loop.h"
#include "records/epoch.h"
#include "support/metric_values.h"

namespace idetcd::directive {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr ReloadSettings kShort{.interval = 5ms, .jitter = 2ms};

class CorefileWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    process_.reloads.in_use = process_.reloads.tried = "a";
    process_.reloads.digest = [this] {
      const std::lock_guard lock(mutex_);
      ++looks_;
      return files_;
    };
    process_.reloads.start = [this] {
      ++reloads_;
      process_.reloads.tried = now();
      if (accepts_) process_.reloads.in_use = now();
    };
  }
  void TearDown() override {
    process_.visitStates([](resolve::ProcessState& state) { state.stop(); });
    process_.executor->finish(10s);
  }

  void write(const std::string& files) {
    const std::lock_guard lock(mutex_);
    files_ = files;
  }
  std::string now() {
    const std::lock_guard lock(mutex_);
    return files_;
  }
  int looks() {
    const std::lock_guard lock(mutex_);
    return looks_;
  }
  // Runs the loop until `condition`.
  void runUntil(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    bool in_time = true;
    net::Timer poll(loop_, [&] {
      in_time = std::chrono::steady_clock::now() < end;
      if (condition() || !in_time) loop_.stop();
    });
    poll.start(1ms, 1ms);
    loop_.run();
    EXPECT_TRUE(in_time);
  }
  void runFor(milliseconds time) {
    net::Timer end(loop_, [this] { loop_.stop(); });
    end.start(time);
    loop_.run();
  }
  void runForLooks(int count) {
    const int until = looks() + count;
    runUntil([this, until] { return looks() >= until; });
  }

  records::EpochDomain epochs_;
  net::EventLoop loop_;
  resolve::Process process_{Logger(), loop_, epochs_};
  CorefileWatch& watch_ = process_.state<CorefileWatch>();
  std::mutex mutex_;
  std::string files_ = "a";
  int looks_ = 0;
  int reloads_ = 0;
  bool accepts_ = true;
};

TEST_F(CorefileWatchTest, ReloadsOnceWhatHasChanged) {
  watch_.add(kShort);
  runForLooks(5);
  EXPECT_EQ(reloads_, 0);
  write("b");
  runUntil([this] { return reloads_ > 0; });
  runForLooks(5);
  EXPECT_EQ(reloads_, 1);
  write("a");
  runUntil([this] { return reloads_ == 2; });
}

TEST_F(CorefileWatchTest, WhatIsRefusedIsTriedOnce) {
  watch_.add(kShort);
  accepts_ = false;
  write("bad");
  runUntil([this] { return reloads_ == 1; });
  runForLooks(5);
  EXPECT_EQ(reloads_, 1);
  write("worse");
  runUntil([this] { return reloads_ == 2; });
  write("a");
  runForLooks(5);
  EXPECT_EQ(reloads_, 2) << "it is in use";
  write("worse");
  runUntil([this] { return reloads_ == 3; });
  accepts_ = true;
  write("good");
  runUntil([this] { return reloads_ == 4; });
  EXPECT_EQ(process_.reloads.in_use, "good");
}

TEST_F(CorefileWatchTest, OneThatWaitsIsNotStartedAgain) {
  process_.reloads.start = [this] {
    ++reloads_;
    process_.reloads.waits = true;
  };
  watch_.add(kShort);
  write("b");
  runUntil([this] { return reloads_ == 1; });
  runForLooks(5);
  EXPECT_EQ(reloads_, 1);
  process_.reloads.waits = false;  // and it came to nothing: too few descriptors
  runUntil([this] { return reloads_ == 2; });
}

TEST_F(CorefileWatchTest, TheEndIsNotHeldUp) {
  watch_.add(kShort);
  runForLooks(2);
  EXPECT_EQ(watch_.prepareEnd(), 0ms);
  write("b");
  runFor(100ms);  // of which a defect would have twenty intervals
  EXPECT_EQ(reloads_, 0);
}

// A file that is being written.
TEST_F(CorefileWatchTest, WhatGoesOnChangingIsNotTaken) {
  process_.reloads.digest = [this] {
    const std::lock_guard lock(mutex_);
    files_ = std::to_string(++looks_);
    return files_;
  };
  watch_.add(kShort);
  runForLooks(20);
  EXPECT_EQ(reloads_, 0);
}

TEST_F(CorefileWatchTest, TheShortestIntervalCountsAndTheLastToGoEndsIt) {
  constexpr ReloadSettings kLong{.interval = 1h, .jitter = 1s};
  watch_.add(kLong);
  watch_.add(kShort);
  watch_.add(kLong);
  runForLooks(3);
  watch_.remove(kLong);
  watch_.remove(kLong);
  runForLooks(3);
  watch_.remove(kShort);
  write("b");
  runFor(100ms);  // of which a defect would have twenty intervals
  EXPECT_EQ(reloads_, 0);
}

// As a reload replaces the directives of the configuration before.
TEST_F(CorefileWatchTest, ShowsWhatIsInUse) {
  const auto shown = [this] {
    const auto values = test_support::valuesOf(process_.metrics);
    EXPECT_EQ(test_support::sumOf(process_.metrics, "coredns_reload_version_info"), values.empty() ? 0 : 1);
    return values.empty() ? "" : values.begin()->first;
  };
  EXPECT_EQ(shown(), "");
  watch_.add(kShort);
  watch_.add(kShort);
  EXPECT_EQ(shown(), "coredns_reload_version_info{hash=\"sha512\",value=\"a\"}");
  watch_.remove(kShort);
  watch_.remove(kShort);
  EXPECT_EQ(shown(), "coredns_reload_version_info{hash=\"sha512\",value=\"a\"}");
  process_.reloads.in_use = "b";
  watch_.add(kShort);
  EXPECT_EQ(shown(), "coredns_reload_version_info{hash=\"sha512\",value=\"b\"}");
  runForLooks(1);
  EXPECT_EQ(shown(), "coredns_reload_version_info{hash=\"sha512\",value=\"b\"}");
  watch_.remove(kShort);
  runFor(1ms);
  EXPECT_EQ(shown(), "");
}

TEST_F(CorefileWatchTest, StandardInputIsNotLookedAt) {
  process_.reloads.digest = nullptr;
  watch_.add(kShort);
  EXPECT_EQ(test_support::sumOf(process_.metrics, "coredns_reload_version_info"), 1);
  runFor(50ms);
  EXPECT_EQ(reloads_, 0);
}

}  // namespace
}  // namespace idetcd::directive
