// `loop`: finds out at start whether the upstreams send our queries back. It asks the forwarder for a name that cannot
// be guessed; a query for it that arrives is ours. Each returned query makes it ask the next name (a question on its
// way is not sent twice). As in CoreDNS, more than two sightings, our own asking included, are a loop. Loop thread
// only, but for see(). Counts only between start() and the end of probing.
#pragma once

#include "base/clock.h"
#include "dns/name.h"
#include "dns/query.h"
#include "net/event_loop.h"
#include "resolve/request.h"

namespace idetcd::resolver {

// Owned by a std::shared_ptr.
class LoopProbe : public std::enable_shared_from_this<LoopProbe> {
 public:
  // Has `query` resolved (Forwarder::resolve) and calls `done(answered)` on the loop's thread, at most once, possibly
  // before it returns; `query` is borrowed for the call. `done` may be called when the LoopProbe is gone.
  using Ask = std::function<void(const dns::Query& query, std::function<void(bool answered)> done)>;
  // Called once, with the line without a prefix: `Loop (192.0.2.1:4711 -> :53) detected for zone ".", see …`. May
  // destroy the LoopProbe.
  using OnLoop = std::function<void(const std::string& line)>;

  struct Options {
    dns::Name zone;                          // of the server block
    std::chrono::milliseconds retry{2000};   // after no answer
    std::chrono::milliseconds grace{2000};   // how long after an answer the name may still come back
    std::chrono::milliseconds total{30000};  // then we have done what we could
  };

  LoopProbe(net::EventLoop& loop, Options options, Ask ask, OnLoop on_loop);
  ~LoopProbe() { finish(); }
  LoopProbe(const LoopProbe&) = delete;
  LoopProbe& operator=(const LoopProbe&) = delete;

  void start();
  void stop() { finish(); }  // for good

  // Any loop's thread, for every query of the server block before it is forwarded. The query goes on to the next
  // handler whatever it is.
  void see(const dns::Query& query, const resolve::Request& request);

  // Relaxed: it guards nothing; a look too early or too late misses one count.
  bool isProbing() const { return probing_.load(std::memory_order_relaxed); }

  // The line for a loop that is certain without asking: the servers of `zone` are we ourselves, at `local`.
  static std::string describe(const SocketAddress& local, const dns::Name& zone);

 private:
  // Our own asking is the first time that the probe is seen; "more than twice" is this many times from outside.
  static constexpr size_t kMaxReturns = 2;

  void askNext();
  void onAnswer(bool answered);
  void onReturn(const std::string& line);
  void finish();

  net::EventLoop& loop_;
  const Options options_;
  const Ask ask_;
  const OnLoop on_loop_;
  std::array<dns::Name, kMaxReturns> names_;
  std::atomic<bool> probing_{false};
  std::atomic<size_t> returns_{0};
  size_t returns_handled_ = 0;
  BootClock::time_point deadline_{};
  std::unique_ptr<net::Timer> retry_;  // none: not started
  std::unique_ptr<net::Timer> end_;    // none: not started, or over
};

}  // namespace idetcd::resolver
