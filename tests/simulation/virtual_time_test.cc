#include "simulation/virtual_time.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/scheduler.h"

namespace idetcd::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Time kEnd{3600s};

void runAll(VirtualTime& time) {
  while (time.step(kEnd)) {
  }
}

TEST(VirtualTime, GoesFromEventToEventInOrder) {
  VirtualTime time;
  std::string order;
  time.after(2s, [&] { order += 'c'; });
  time.after(1s, [&] {
    order += 'a';
    time.after(0s, [&] { order += 'b'; });
  });
  time.after(2s, [&] { order += 'd'; });
  EXPECT_TRUE(time.step(kEnd));
  EXPECT_EQ(time.now(), Time(1s));
  EXPECT_FALSE(time.step(Time(500ms))) << "nothing more until then";
  runAll(time);
  EXPECT_EQ(order, "abcd");
  EXPECT_EQ(time.now(), kEnd);
}

TEST(VirtualTime, AnAlarmHappensAtTheTimeThatWasSetLast) {
  VirtualTime time;
  std::vector<Time> rung;
  VirtualTime::Alarm alarm(time, [&] { rung.push_back(time.now()); });
  alarm.set(Time(1s));
  alarm.set(Time(3s));
  time.at(Time(4s), [&] { alarm.set(Time(5s)); });
  time.at(Time(6s), [&] { alarm.set(Time(8s)); });
  time.at(Time(7s), [&] { alarm.cancel(); });
  runAll(time);
  EXPECT_EQ(rung, (std::vector{Time(3s), Time(5s)}));
}

TEST(VirtualTime, AnAlarmThatHasGoneTakesNoOthersPlace) {
  VirtualTime time;
  std::string order;
  {
    VirtualTime::Alarm gone(time, [&] { order += 'x'; });
    gone.set(Time(1s));
  }
  time.at(Time(2s), [&] { order += 'b'; });
  VirtualTime::Alarm alarm(time, [&] { order += 'c'; });
  alarm.set(Time(3s));
  runAll(time);
  EXPECT_EQ(order, "bc");
}

TEST(SimulatedClock, DriftsAndSaysWhenItWillShowATime) {
  VirtualTime time;
  SimulatedClock clock(time, {Time(100s), 50s}, 10'000);
  Time shown;
  time.at(clock.whenBoot(Time(110s)), [&] { shown = clock.boot(); });
  runAll(time);
  EXPECT_GE(shown, Time(110s));
  EXPECT_LT(shown, Time(110s) + 1us);
  EXPECT_GT(clock.boot(), Time(100s) + 3600s + 35s) << "it is fast";
}

TEST(SimulatedClock, StandsStillWithItsMachine) {
  VirtualTime time;
  SimulatedClock clock(time, {Time(0s), 50s}, 0);
  clock.stop();
  EXPECT_EQ(clock.whenBoot(Time(1s)), Time::max());
  time.step(Time(10s));
  EXPECT_EQ(clock.boot(), Time(0s));
  EXPECT_EQ(clock.wall(), 50s);
  clock.go();
  clock.setWall(10s);
  time.step(Time(11s));
  EXPECT_EQ(clock.boot(), Time(1s));
  EXPECT_EQ(clock.wall(), 61s);
}

runtime::Task<void> sleepThenSay(SimulatedScheduler& scheduler, Duration duration, std::string& said, char what) {
  const bool slept = co_await scheduler.sleepFor(duration);
  said += slept ? what : '!';
}

struct Machine {
  VirtualTime time;
  SimulatedClock clock{time, {Time(1000s), 0s}, 0};
  int turns = 0;
  SimulatedScheduler scheduler{time, clock, [this] { ++turns; }};
  std::string said;

  void start(Duration duration, char what) {
    scheduler.deliver([&] { scheduler.spawn(sleepThenSay(scheduler, duration, said, what)); });
  }
};

TEST(SimulatedScheduler, WakesATaskWhenItsTimeHasCome) {
  Machine machine;
  machine.start(2s, 'b');
  machine.start(1s, 'a');
  const int turns = machine.turns;
  machine.time.step(Time(1500ms));
  EXPECT_EQ(machine.said, "a");
  EXPECT_EQ(machine.turns, turns + 1) << "it runs when there is something to do";
  runAll(machine.time);
  EXPECT_EQ(machine.said, "ab");
  machine.scheduler.end();
}

TEST(SimulatedScheduler, ComesLateAfterAPause) {
  Machine machine;
  machine.start(1s, 'a');
  machine.scheduler.stand();
  machine.scheduler.deliver([&] { machine.said += 'm'; });
  machine.time.after(10s, [&] { machine.scheduler.go(SimulatedScheduler::First::kTimers); });
  machine.time.step(Time(5s));
  EXPECT_EQ(machine.said, "");
  runAll(machine.time);
  EXPECT_EQ(machine.said, "am");
  machine.scheduler.end();
}

TEST(SimulatedScheduler, ATimerSleepsWithItsMachineUntilSomethingComes) {
  for (const bool something_comes : {false, true}) {
    Machine machine;
    machine.start(2s, 'a');
    machine.scheduler.stand();
    machine.time.after(10s, [&] { machine.scheduler.go(SimulatedScheduler::First::kTimers, 10s); });
    if (something_comes) machine.time.after(11s, [&] { machine.scheduler.deliver([] {}); });
    while (machine.time.step(Time(11500ms))) {
    }
    EXPECT_EQ(machine.said, something_comes ? "a" : "");
    runAll(machine.time);
    EXPECT_EQ(machine.said, "a");
    machine.scheduler.end();
  }
}

TEST(SimulatedScheduler, TheEndOfAProcessEndsItsTasks) {
  Machine machine;
  machine.start(1s, 'a');
  machine.start(1h, 'b');
  machine.scheduler.end();
  EXPECT_TRUE(machine.scheduler.ended());
  EXPECT_EQ(machine.said, "!!");
  machine.scheduler.deliver([&] { machine.said += 'm'; });
  EXPECT_FALSE(machine.scheduler.post([] {}));
  runAll(machine.time);
  EXPECT_EQ(machine.said, "!!");
}

}  // namespace
}  // namespace idetcd::simulation
