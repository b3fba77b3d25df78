// Time that passes from event to event: an event queue, the clocks of simulated machines, and the scheduler of a
// simulated process. One thread; the order of what happens depends on nothing but the order of the calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "runtime/scheduler.h"

namespace idetcd::simulation {

// True time, which no machine of the simulation can read.
using Time = BootClock::time_point;
using Duration = std::chrono::nanoseconds;

class VirtualTime {
 public:
  Time now() const { return now_; }
  // At that time, or now if it has passed, after all that was planned for then before.
  void at(Time time, std::function<void()> what);
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // What happens again and again, each time at the moment that was set last, as by at(). Nothing is allocated for it. The
  // time outlives it.
  class Alarm {
   public:
    Alarm(VirtualTime& time, std::function<void()> what);
    ~Alarm();
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;

    void set(Time time);
    void cancel();

   private:
    VirtualTime& time_;
    const size_t place_;
  };

  // Goes on to the next event and lets it happen. False: there is none until `end`, which it is now. An alarm that was
  // set anew counts as an event also where it would have happened before.
  bool step(Time end);
  uint64_t steps() const { return steps_; }

 private:
  struct Planned {
    Time time;
    uint64_t number;
    size_t place;
  };
  struct Later {
    bool operator()(const Planned& a, const Planned& b) const {
      return a.time != b.time ? a.time > b.time : a.number > b.number;
    }
  };
  struct Event {
    std::function<void()> what;
    uint64_t number = 0;  // of what is planned; 0: nothing is
    bool is_alarm = false;
  };

  size_t takePlace(std::function<void()> what, bool is_alarm);
  void leavePlace(size_t place);
  void plan(Time time, size_t place);

  Time now_;
  uint64_t planned_ = 0;
  uint64_t steps_ = 0;
  std::vector<Planned> queue_;  // a heap by Later
  std::deque<Event> events_;    // by their places, which do not move
  std::vector<size_t> free_;    // places
};

// The clocks of one machine: CLOCK_BOOTTIME, which drifts, stands still while a hypervisor pauses the machine, and goes
// on while it is suspended; and CLOCK_REALTIME, which goes with it and can be set.
class SimulatedClock {
 public:
  struct Reading {
    Time boot;
    Duration wall{0};
  };

  // It goes wrong by `drift_ppm` microseconds a second.
  SimulatedClock(const VirtualTime& time, Reading start, int64_t drift_ppm)
      : time_(&time), drift_ppm_(drift_ppm), base_(time.now()), start_(start) {}

  Time boot() const { return start_.boot + gone(); }
  Duration wall() const { return start_.wall + gone(); }
  Reading read() const { return {boot(), wall()}; }
  // When boot() will have come that far; the end of time while the clocks stand still.
  Time whenBoot(Time boot) const;

  void stop();
  void go();
  bool isStopped() const { return stopped_; }
  void setWall(Duration by) { start_.wall += by; }

 private:
  Duration gone() const;

  const VirtualTime* time_;
  int64_t drift_ppm_;
  Time base_;  // when start_ was read
  Reading start_;
  bool stopped_ = false;
};

// Runs the Tasks of one process. It takes no time: what is ready runs when the event that made it so happens.
class SimulatedScheduler final : public runtime::Scheduler {
 public:
  // `after_turn` is called whenever something has run. Both outlive the scheduler. The clocks may be stopped between
  // stand() and go().
  SimulatedScheduler(VirtualTime& time, const SimulatedClock& clock, std::function<void()> after_turn);
  ~SimulatedScheduler() override;  // REQUIRES: ended()

  bool post(std::function<void()> work) override;
  bool stopping() const override { return stopping_; }
  bool onThread() const override { return true; }
  Time now() const override { return clock_.boot(); }
  Duration wallTime() const override { return clock_.wall(); }

  // --- the world ---
  // Something has come from outside: the process deals with it now, or when it goes on.
  void deliver(std::function<void()> what);
  // The process does not run until go(). Then what is overdue and what has come meanwhile come in either order. If the
  // machine was suspended, for `asleep`, the kernel's timers slept with it.
  enum class First { kTimers, kInbox };
  void stand();
  void go(First first, Duration asleep = Duration(0));
  bool isStanding() const { return standing_ > 0; }
  // Ends the process at once: every wait ends, and every Task with it.
  void end();
  bool ended() const { return stopping_ && isIdle(); }
  uint64_t turns() const { return turns_; }

 private:
  void turn();
  void runPosted();
  void planWakeUp();
  void wakeUp();

  VirtualTime& time_;
  const SimulatedClock& clock_;
  const std::function<void()> after_turn_;
  std::deque<std::function<void()>> posted_;
  std::deque<std::function<void()>> inbox_;  // while it stands
  bool stopping_ = false;
  int standing_ = 0;
  uint64_t turns_ = 0;
  Time asleep_until_;
  std::optional<Time> wake_up_;  // that is planned
  VirtualTime::Alarm alarm_;
};

}  // namespace idetcd::simulation
