// Checks periodically whether the Corefile, or a file that it imports, has changed since the last attempt, and reloads it
// if so. Of all blocks with `reload` the one with the shortest interval says when. The first loop's
// thread; the files are read on the executor.
#pragma once

#include <random>

#include "base/log.h"
#include "base/metrics.h"
#include "net/event_loop.h"
#include "resolve/directive.h"

namespace idetcd::directive {

struct ReloadSettings {
  std::chrono::milliseconds interval{30'000};
  std::chrono::milliseconds jitter{15'000};  // by up to half of it each wait is longer or shorter than `interval`

  bool operator==(const ReloadSettings&) const = default;
};

class CorefileWatch final : public resolve::ProcessState {
 public:
  // A change counts once it is stable for this time (at most an interval): no half-written file.
  static constexpr std::chrono::milliseconds kSettleTime{1000};

  explicit CorefileWatch(resolve::Process& process);

  // A block of the configuration in use has the directive; not any more.
  void add(const ReloadSettings& settings);
  void remove(const ReloadSettings& settings);

  std::chrono::milliseconds prepareEnd() override;
  void stop() override;

 private:
  const ReloadSettings& shortest() const;  // REQUIRES: there are settings
  void show();
  void wait(std::chrono::milliseconds time);
  void waitForNext();
  void look();
  void onLooked(const std::string& digest);

  resolve::Process& process_;
  const Logger log_;
  std::mt19937_64 random_;
  std::vector<ReloadSettings> settings_;  // of all blocks
  std::optional<net::Timer> timer_;
  std::unique_ptr<metrics::GaugeFunction> version_;  // of the configuration in use
  bool looking_ = false;
  bool ending_ = false;
  std::string seen_;  // the digest of what has changed; empty: nothing
};

}  // namespace idetcd::directive
