// Rate, failures and durations of each of the last ten minutes' seconds, and the busiest names, of all server blocks
// and loops together. Unanswered queries count; a duration is null where nothing was answered. Any thread.
//
//   GET /v1/history[?since=U]   {"now", "seconds": [{"at", "queries", "failures", "p50_seconds", "p99_seconds"}]}:
//                               the full seconds after U (Unix), 600 at most
//   GET /v1/top[?seconds=N]     {"seconds", "rate", "p50_seconds", "p99_seconds", "sampled", "names": [{"name", "type",
//                               "share", "rate"}], "rcodes": {"NOERROR": share}}: of the last N full seconds (10
//                               unless said), the busiest names first, by a sample (resolve/query_samples)
//   "queries" in the status     {"rate", "p50_seconds", "p99_seconds", "seconds"}: of the last 10 full seconds
#pragma once

#include "base/clock.h"
#include "base/json.h"
#include "control/control.h"
#include "resolve/directive.h"
#include "resolve/query_samples.h"

namespace idetcd::control {

class Traffic final : public resolve::ProcessState {
 public:
  static constexpr int64_t kRecent = 10;  // seconds
  // A loop may count answers of a second's end shortly after it.
  static constexpr std::chrono::milliseconds kSettling{50};

  // One instant by both clocks.
  struct Now {
    BootClock::time_point boot;
    double unix_seconds;
    static Now read();
  };

  explicit Traffic(resolve::Process& process, Now start = Now::read());

  // Adds the paths and the section of the status to the configuration that is being built.
  void addTo(Control& control);

  nlohmann::json history(double since, Now now = Now::read());
  // REQUIRES: seconds > 0. Of as many as there have been, if it is too large.
  nlohmann::json top(int64_t seconds, Now now = Now::read()) const;
  // The section of the status.
  nlohmann::json recent(Now now = Now::read()) const;

 private:
  // Full seconds, by BootClock: [first, last].
  struct Period {
    int64_t first;
    int64_t last;
    int64_t seconds() const { return last - first + 1; }
  };
  Period lastSeconds(int64_t seconds, Now now) const;
  nlohmann::json sumsOf(const Period& period) const;
  int64_t unixOffset(Now now);

  resolve::Process& process_;
  const int64_t start_;  // in seconds of BootClock
  std::atomic<int64_t> unix_offset_;
};

}  // namespace idetcd::control
