// Deadlines by the ten thousand: a queue of what expires a fixed time after it was armed, so that the oldest is always
// the first, arming and disarming are O(1) without allocation, and one timer serves all. Loop thread only.
#pragma once

#include "base/clock.h"
#include "net/event_loop.h"

namespace idetcd::net {

class DeadlineQueue;

// Disarms itself when it is destroyed. The callback may destroy it.
class Deadline {
 public:
  Deadline(void* owner, void (*on_expiry)(void* owner)) : owner_(owner), on_expiry_(on_expiry) {}
  ~Deadline() { disarm(); }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  bool isArmed() const { return previous_ != nullptr; }
  void disarm();

 private:
  friend class DeadlineQueue;
  Deadline() = default;  // the queue's own end
  void insertBefore(Deadline& next);

  void* owner_ = nullptr;
  void (*on_expiry_)(void*) = nullptr;
  BootClock::time_point when_;
  Deadline* previous_ = nullptr;
  Deadline* next_ = nullptr;
};

class DeadlineQueue {
 public:
  DeadlineQueue(EventLoop& loop, std::chrono::milliseconds time);
  ~DeadlineQueue();  // disarms all
  DeadlineQueue(const DeadlineQueue&) = delete;
  DeadlineQueue& operator=(const DeadlineQueue&) = delete;

  // Expires `time` from now, whatever it was armed for before.
  void arm(Deadline& deadline);
  std::chrono::milliseconds time() const { return time_; }

 private:
  // At a time: thousands may expire at once, and what they do takes time that sockets wait for. Two questions to an
  // upstream take about as long as an answer's way to a client and back: hardly any client notices that.
  static constexpr int kMaxExpiries = 2;

  bool isDue(BootClock::time_point now) const { return end_.next_ != &end_ && end_.next_->when_ <= now; }
  void onTimer();
  void startTimer(BootClock::time_point now);

  EventLoop& loop_;
  const std::chrono::milliseconds time_;
  Deadline end_;                                                // of a ring: end_.next_ is the first
  bool timer_runs_ = false;                                     // or onTimer() is posted
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what is posted
  Timer timer_;
};

// Deadlines of different times, rounded up by an eighth at most: a queue for each step, made at its first use.
class DeadlineLadder {
 public:
  // REQUIRES: 0 < shortest.
  DeadlineLadder(EventLoop& loop, std::chrono::nanoseconds shortest, std::chrono::nanoseconds longest);

  // Expires `time` from now; a time out of bounds is the nearest bound.
  void arm(Deadline& deadline, std::chrono::nanoseconds time);

 private:
  EventLoop& loop_;
  std::vector<std::chrono::milliseconds> times_;  // ascending
  std::vector<std::unique_ptr<DeadlineQueue>> queues_;
};

}  // namespace idetcd::net
