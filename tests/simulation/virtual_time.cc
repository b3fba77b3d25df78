#include "simulation/virtual_time.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace idetcd::simulation {
namespace {

// A process that has that much to do at one moment never comes to an end of it.
constexpr int kMaxRounds = 100'000;

}  // namespace

// --- VirtualTime ---

void VirtualTime::at(Time time, std::function<void()> what) { plan(time, takePlace(std::move(what), false)); }

size_t VirtualTime::takePlace(std::function<void()> what, bool is_alarm) {
  if (free_.empty()) {
    free_.push_back(events_.size());
    events_.emplace_back();
  }
  const size_t place = free_.back();
  free_.pop_back();
  events_[place] = {std::move(what), 0, is_alarm};
  return place;
}

void VirtualTime::leavePlace(size_t place) {
  events_[place] = {};
  free_.push_back(place);
}

void VirtualTime::plan(Time time, size_t place) {
  events_[place].number = ++planned_;
  queue_.push_back({std::max(time, now_), planned_, place});
  std::push_heap(queue_.begin(), queue_.end(), Later());
}

bool VirtualTime::step(Time end) {
  if (queue_.empty() || queue_.front().time > end) {
    now_ = std::max(now_, end);
    return false;
  }
  std::pop_heap(queue_.begin(), queue_.end(), Later());
  const Planned next = queue_.back();
  queue_.pop_back();
  now_ = next.time;
  ++steps_;
  Event& event = events_[next.place];
  if (event.number != next.number) return true;
  event.number = 0;
  if (event.is_alarm) {
    event.what();
    return true;
  }
  const auto what = std::move(event.what);
  leavePlace(next.place);
  what();
  return true;
}

VirtualTime::Alarm::Alarm(VirtualTime& time, std::function<void()> what)
    : time_(time), place_(time.takePlace(std::move(what), true)) {}

VirtualTime::Alarm::~Alarm() { time_.leavePlace(place_); }

void VirtualTime::Alarm::set(Time time) { time_.plan(time, place_); }

void VirtualTime::Alarm::cancel() { time_.events_[place_].number = 0; }

// --- SimulatedClock ---

Duration SimulatedClock::gone() const {
  if (stopped_) return Duration(0);
  const int64_t passed = (time_->now() - base_).count();
  return Duration(passed + passed / 1'000'000 * drift_ppm_ + passed % 1'000'000 * drift_ppm_ / 1'000'000);
}

Time SimulatedClock::whenBoot(Time boot) const {
  if (stopped_) return Time::max();
  const int64_t wanted = (boot - start_.boot).count();
  // To within what is rounded off: too late rather than too early.
  const int64_t rate = 1'000'000 + drift_ppm_;
  return base_ + Duration(wanted / rate * 1'000'000 + wanted % rate * 1'000'000 / rate + 2);
}

void SimulatedClock::stop() {
  start_ = read();
  stopped_ = true;
}

void SimulatedClock::go() {
  base_ = time_->now();
  stopped_ = false;
}

// --- SimulatedScheduler ---

SimulatedScheduler::SimulatedScheduler(VirtualTime& time, const SimulatedClock& clock, std::function<void()> after_turn)
    : time_(time), clock_(clock), after_turn_(std::move(after_turn)), alarm_(time, [this] { wakeUp(); }) {}

SimulatedScheduler::~SimulatedScheduler() = default;

bool SimulatedScheduler::post(std::function<void()> work) {
  if (stopping_) return false;
  posted_.push_back(std::move(work));
  return true;
}

void SimulatedScheduler::deliver(std::function<void()> what) {
  if (stopping_) return;
  if (standing_ > 0) {
    inbox_.push_back(std::move(what));
    return;
  }
  what();
  turn();
}

void SimulatedScheduler::stand() { ++standing_; }

void SimulatedScheduler::go(First first, Duration asleep) {
  if (--standing_ > 0 || stopping_) return;
  if (asleep.count() > 0) asleep_until_ = wake_up_ ? clock_.whenBoot(*wake_up_) + asleep : time_.now();
  wake_up_.reset();
  std::deque<std::function<void()>> inbox = std::exchange(inbox_, {});
  if (inbox.empty() && asleep_until_ > time_.now()) return planWakeUp();
  if (first == First::kTimers) turn();
  for (auto& what : inbox) what();
  turn();
}

void SimulatedScheduler::turn() {
  ++turns_;
  for (int round = 0;; ++round) {
    if (round == kMaxRounds) throw std::runtime_error("a process has always something to do");
    runPosted();
    runTimers();
    runReady();
    const auto due = nextTimer();
    if (!hasReady() && posted_.empty() && !(due && *due <= now())) break;
  }
  if (stopping_) return;
  planWakeUp();
  after_turn_();
}

void SimulatedScheduler::runPosted() {
  if (posted_.empty()) return;  // as a rule; an exchanged deque costs more than most turns
  for (auto& work : std::exchange(posted_, {})) work();
}

void SimulatedScheduler::planWakeUp() {
  if (standing_ > 0 || stopping_) return;
  const auto due = nextTimer();
  if (!due) {
    wake_up_.reset();
    alarm_.cancel();
    return;
  }
  if (due == wake_up_ && asleep_until_ <= time_.now()) return;
  wake_up_ = due;
  const Time time = clock_.whenBoot(*due);
  if (time < Time::max()) alarm_.set(std::max(time, asleep_until_));
}

void SimulatedScheduler::wakeUp() {
  if (standing_ > 0) return;
  wake_up_.reset();
  turn();
}

void SimulatedScheduler::end() {
  if (stopping_) return;
  runPosted();
  stopping_ = true;
  alarm_.cancel();
  cancelWaits();
  for (int round = 0; !isIdle(); ++round) {
    if (round == kMaxRounds) throw std::runtime_error("a process does not end");
    runReady();
  }
  inbox_.clear();
}

}  // namespace idetcd::simulation
