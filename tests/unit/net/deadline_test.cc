#include "net/deadline.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::net {
namespace {

using std::chrono::milliseconds;

class DeadlineTest : public testing::Test {
 protected:
  struct Task {
    Task(DeadlineTest& test, int task_id) : owner(test), id(task_id), deadline(this, &Task::onExpiry) {}
    static void onExpiry(void* self) {
      auto& task = *static_cast<Task*>(self);
      task.owner.expired.push_back(task.id);
      if (task.then) task.then();
    }
    DeadlineTest& owner;
    int id;
    std::function<void()> then;
    Deadline deadline;
  };
  Task& add(int id) {
    tasks.push_back(std::make_unique<Task>(*this, id));
    return *tasks.back();
  }
  void runFor(milliseconds time) {
    Timer timer(loop, [this] { loop.stop(); });
    timer.start(time);
    loop.run();
  }

  EventLoop loop;
  DeadlineQueue queue{loop, milliseconds(30)};
  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<int> expired;
};

TEST_F(DeadlineTest, ExpireInOrderAndNotBefore) {
  const auto start = BootClock::now();
  for (int i = 0; i < 3; ++i) queue.arm(add(i).deadline);
  tasks.back()->then = [this] { loop.stop(); };
  loop.run();
  EXPECT_GE(BootClock::now() - start, milliseconds(30));
  EXPECT_EQ(expired, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(tasks[0]->deadline.isArmed());
}

TEST_F(DeadlineTest, DisarmedOnesDoNotExpire) {
  for (int i = 0; i < 4; ++i) queue.arm(add(i).deadline);
  tasks[0]->deadline.disarm();
  tasks[0]->deadline.disarm();
  tasks.erase(tasks.begin() + 2);
  tasks.back()->then = [this] { loop.stop(); };
  loop.run();
  EXPECT_EQ(expired, (std::vector<int>{1, 3}));
  runFor(milliseconds(80));
  EXPECT_EQ(expired.size(), 2u) << "and no others after them";
}

TEST_F(DeadlineTest, ArmingAgainPutsItLast) {
  for (int i = 0; i < 2; ++i) queue.arm(add(i).deadline);
  const auto again = BootClock::now();
  queue.arm(tasks[0]->deadline);
  tasks[0]->then = [this] { loop.stop(); };
  loop.run();
  EXPECT_EQ(expired, (std::vector<int>{1, 0}));
  EXPECT_GE(BootClock::now() - again, milliseconds(30));
}

TEST_F(DeadlineTest, CallbacksMayArmDisarmAndDestroy) {
  for (int i = 0; i < 3; ++i) queue.arm(add(i).deadline);
  int again = 2;
  const auto stop_after_three = [this] {
    if (expired.size() == 3) loop.stop();
  };
  tasks[0]->then = [&] {
    tasks[1]->deadline.disarm();
    if (--again > 0) queue.arm(tasks[0]->deadline);
    stop_after_three();
  };
  tasks[2]->then = [&] {
    stop_after_three();
    tasks.pop_back();
  };
  loop.run();
  runFor(milliseconds(80));
  EXPECT_EQ(expired.front(), 0);
  std::sort(expired.begin(), expired.end());  // who of two is last depends on when each was armed
  EXPECT_EQ(expired, (std::vector<int>{0, 0, 2}));
}

TEST_F(DeadlineTest, ManyAtOnceDoNotHoldTheLoopUp) {
  constexpr int kTasks = 1000;
  for (int i = 0; i < kTasks; ++i) queue.arm(add(i).deadline);
  // Work that is posted when the first expires is done before the last does.
  size_t seen = 0;
  tasks.front()->then = [&] { loop.post([&] { seen = expired.size(); }); };
  tasks.back()->then = [this] { loop.stop(); };
  loop.run();
  EXPECT_EQ(expired.size(), size_t{kTasks});
  EXPECT_GT(seen, 0u);
  EXPECT_LT(seen, size_t{kTasks} / 2);
}

TEST_F(DeadlineTest, AQueueMayGoBeforeItsDeadlines) {
  auto other = std::make_unique<DeadlineQueue>(loop, milliseconds(1));
  other->arm(add(0).deadline);
  other.reset();
  EXPECT_FALSE(tasks[0]->deadline.isArmed());
  runFor(milliseconds(10));
  EXPECT_TRUE(expired.empty());
}

}  // namespace
}  // namespace idetcd::net
