#include "net/deadline.h"

#include <iterator>

namespace idetcd::net {

void Deadline::disarm() {
  if (!isArmed()) return;
  previous_->next_ = next_;
  next_->previous_ = previous_;
  previous_ = next_ = nullptr;
}

void Deadline::insertBefore(Deadline& next) {
  previous_ = next.previous_;
  next_ = &next;
  previous_->next_ = this;
  next.previous_ = this;
}

DeadlineQueue::DeadlineQueue(EventLoop& loop, std::chrono::milliseconds time)
    : loop_(loop), time_(time), timer_(loop, [this] { onTimer(); }) {
  end_.previous_ = end_.next_ = &end_;
}

DeadlineQueue::~DeadlineQueue() {
  while (end_.next_ != &end_) end_.next_->disarm();
  end_.previous_ = end_.next_ = nullptr;
}

void DeadlineQueue::arm(Deadline& deadline) {
  deadline.disarm();
  const auto now = BootClock::now();
  deadline.when_ = now + time_;
  deadline.insertBefore(end_);
  if (!timer_runs_) startTimer(now);
}

// The timer is left alone when the first deadline is disarmed: it finds the next one when it runs out, and so starts
// once per `time` under load rather than once per deadline.
void DeadlineQueue::onTimer() {
  const auto now = BootClock::now();
  for (int i = 0; i < kMaxExpiries && isDue(now); ++i) {
    Deadline& first = *end_.next_;
    first.disarm();
    first.on_expiry_(first.owner_);
  }
  if (isDue(now)) {  // the sockets' turn (a timer of no time would run before it)
    loop_.post([this, alive = std::weak_ptr(alive_)] {
      if (alive.lock()) onTimer();
    });
    return;
  }
  timer_runs_ = false;
  if (end_.next_ != &end_) startTimer(now);
}

void DeadlineQueue::startTimer(BootClock::time_point now) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_.next_->when_ - now);
  timer_.start(std::max(left, std::chrono::milliseconds(1)));
  timer_runs_ = true;
}

DeadlineLadder::DeadlineLadder(EventLoop& loop, std::chrono::nanoseconds shortest, std::chrono::nanoseconds longest)
    : loop_(loop) {
  assert(shortest.count() > 0);
  const auto last = std::chrono::ceil<std::chrono::milliseconds>(longest);
  auto time = std::chrono::ceil<std::chrono::milliseconds>(shortest);
  for (; time < last; time += std::max(time / 8, std::chrono::milliseconds(1))) times_.push_back(time);
  times_.push_back(last);
  queues_.resize(times_.size());
}

void DeadlineLadder::arm(Deadline& deadline, std::chrono::nanoseconds time) {
  const auto step = std::min(std::lower_bound(times_.begin(), times_.end(), time), std::prev(times_.end()));
  auto& queue = queues_[static_cast<size_t>(step - times_.begin())];
  if (!queue) queue = std::make_unique<DeadlineQueue>(loop_, *step);
  queue->arm(deadline);
}

}  // namespace idetcd::net
