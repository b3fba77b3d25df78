#include "app/watchdog.h"

namespace idetcd::app {

// One question to every loop. The loops share it; the watchdog may be gone when they answer.
struct Watchdog::Round {
  Round(Watchdog* asking, size_t loops) : watchdog(asking), missing(loops) {}

  Watchdog* watchdog;           // null: the answer is not wanted any more. The first loop's thread
  std::atomic<size_t> missing;  // answers; who gives the last one reports
};

Watchdog::Watchdog(net::EventLoop& loop, std::chrono::microseconds limit, std::function<void()> alive)
    : loop_(loop),
      interval_(std::chrono::duration_cast<std::chrono::milliseconds>(limit) / 2),
      alive_(std::move(alive)),
      timer_(loop, [this] { ask(); }) {}

Watchdog::~Watchdog() {
  if (round_) round_->watchdog = nullptr;
}

void Watchdog::watch(std::vector<net::EventLoop*> loops) {
  loops_ = std::move(loops);
  if (interval_.count() == 0) return;
  ask();
  timer_.start(interval_, interval_);
}

// While an answer is missing no other question is asked: it is the loop that stands still which is waited for.
void Watchdog::ask() {
  if (round_) return;
  round_ = std::make_shared<Round>(this, loops_.size());
  for (net::EventLoop* asked : loops_) {
    asked->post([round = round_, &first = loop_] {
      if (round->missing.fetch_sub(1) != 1) return;
      first.post([round] {
        if (round->watchdog == nullptr) return;
        Watchdog& watchdog = *round->watchdog;
        watchdog.round_.reset();
        watchdog.alive_();
      });
    });
  }
}

}  // namespace idetcd::app
