// A sign of life for the service manager (WatchdogSec= of systemd.service(5)), twice within the time that it sets: given
// only when every loop has done a piece of work since the last one, so that a server with a loop that stands still is
// started anew. The first loop's thread.
#pragma once

#include "net/event_loop.h"

namespace idetcd::app {

class Watchdog {
 public:
  // `alive` is called on `loop`, the first one. `limit` zero: never.
  Watchdog(net::EventLoop& loop, std::chrono::microseconds limit, std::function<void()> alive);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on these loops are asked, the first one among them. They outlive the watchdog, or another call.
  void watch(std::vector<net::EventLoop*> loops);

 private:
  struct Round;

  void ask();

  net::EventLoop& loop_;
  const std::chrono::milliseconds interval_;
  const std::function<void()> alive_;
  std::vector<net::EventLoop*> loops_;
  std::shared_ptr<Round> round_;  // whose answers are still to come; null: none
  net::Timer timer_;
};

}  // namespace idetcd::app
