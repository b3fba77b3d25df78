// The directive `reload`: a Corefile that has changed is taken over without a signal.
#include "base/random.h"
#include "config/duration.h"
#include "config/option_table.h"
#include "directive/reload/corefile_watch.h"

namespace idetcd::directive {

namespace {

using std::chrono::floor;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::chrono::seconds kMinInterval{2};
constexpr std::chrono::seconds kMinJitter{1};  // if there is one

Result<nanoseconds> parseTime(const config::DirectiveCursor& cursor, const std::string& word) {
  const auto duration = config::parseDuration(word);
  if (!duration) return cursor.error(duration.error().message);
  return *duration;
}

class ReloadDirective final : public resolve::Configured<ReloadSettings> {
 public:
  // `reload [INTERVAL] [JITTER]`
  Result<void> read(config::DirectiveCursor& cursor, const resolve::Block&) override {
    const auto words = cursor.args(0, 2);
    if (!words) return tl::unexpected(words.error());
    ReloadSettings settings;
    if (!words->empty()) {
      const auto interval = parseTime(cursor, words->front());
      if (!interval) return tl::unexpected(interval.error());
      if (*interval < kMinInterval) return cursor.error(fmt::format("'{}' is less than 2s", words->front()));
      settings.interval = floor<milliseconds>(*interval);
    }
    if (words->size() == 2) {
      const auto jitter = parseTime(cursor, words->back());
      if (!jitter) return tl::unexpected(jitter.error());
      if (*jitter < kMinJitter && jitter->count() != 0) {
        return cursor.error(fmt::format("'{}' is less than 1s, and not 0s", words->back()));
      }
      settings.jitter = floor<milliseconds>(*jitter);
    }
    settings.jitter = std::min(settings.jitter, settings.interval / 2);
    settings_ = settings;
    return cursor.finish();
  }
  Result<void> prepare(resolve::Process& process, const resolve::Block&) override {
    watch_ = &process.state<CorefileWatch>();
    return {};
  }
  void start() override { watch_->add(settings_); }
  void stop() override { watch_->remove(settings_); }

 private:
  CorefileWatch* watch_ = nullptr;  // of the process
};

}  // namespace

CorefileWatch::CorefileWatch(resolve::Process& process)
    : process_(process), log_(process.log.named("plugin/reload")), random_(KernelRandom().next()) {}

void CorefileWatch::add(const ReloadSettings& settings) {
  settings_.push_back(settings);
  if (settings_.size() == 1) show();
  if (process_.reloads.digest) return waitForNext();
  if (settings_.size() == 1) log_.warning("The Corefile came from standard input, which is not read again");
}

// A reload removes all settings and adds the next ones before anything else happens on this loop.
void CorefileWatch::remove(const ReloadSettings& settings) {
  settings_.erase(std::find(settings_.begin(), settings_.end(), settings));
  if (!settings_.empty()) return;
  timer_.reset();
  seen_.clear();
  process_.loop.post([this] {
    if (settings_.empty()) version_.reset();
  });
}

// There are no reloads any more.
std::chrono::milliseconds CorefileWatch::prepareEnd() {
  ending_ = true;
  timer_.reset();
  return ProcessState::prepareEnd();
}

void CorefileWatch::stop() { timer_.reset(); }

const ReloadSettings& CorefileWatch::shortest() const {
  return *std::min_element(settings_.begin(), settings_.end(),
                           [](const auto& a, const auto& b) { return a.interval < b.interval; });
}

// The series of the configuration before goes when the new one is there.
void CorefileWatch::show() {
  const std::string& digest = process_.reloads.in_use;
  log_.info("Running configuration SHA512 = {}", digest);
  const auto scope = process_.metrics.scope().with("hash", "sha512").with("value", digest);
  version_.reset(new metrics::GaugeFunction(scope, "coredns_reload_version_info",
                                            "The digest of the Corefile in use, with what it imports.",
                                            [] { return 1.0; }));
}

void CorefileWatch::wait(std::chrono::milliseconds time) {
  if (!timer_) timer_.emplace(process_.loop, [this] { look(); });
  timer_->start(time);
}

void CorefileWatch::waitForNext() {
  const ReloadSettings& settings = shortest();
  const auto half = settings.jitter.count() / 2;
  wait(settings.interval + std::chrono::milliseconds(std::uniform_int_distribution(-half, half)(random_)));
}

void CorefileWatch::look() {
  if (looking_) return;  // for longer than an interval; it goes on when that is done
  looking_ = process_.executor->submit(
      [this, digest = process_.reloads.digest] { process_.loop.post([this, now = digest()] { onLooked(now); }); });
  if (!looking_) waitForNext();
}

void CorefileWatch::onLooked(const std::string& digest) {
  looking_ = false;
  if (settings_.empty() || ending_) return;
  resolve::Reloads& reloads = process_.reloads;
  if (digest == reloads.in_use) reloads.tried = digest;  // the one that was refused is gone again
  if (digest == reloads.tried || reloads.waits) {
    seen_.clear();
    return waitForNext();
  }
  if (std::exchange(seen_, digest) != digest) return wait(std::min(kSettleTime, shortest().interval));
  seen_.clear();
  log_.info("The Corefile has changed: Reloading");
  waitForNext();
  reloads.start();
}

extern const resolve::DirectiveType kReloadDirective{
    .name = "reload",
    .syntax = "reload [INTERVAL] [JITTER]",
    .make = resolve::makeDirective<ReloadDirective>,
    .defaults = []() -> std::vector<config::OptionDefault> {
      const ReloadSettings unsaid;
      return {{"INTERVAL", config::durationText(unsaid.interval)}, {"JITTER", config::durationText(unsaid.jitter)}};
    }};

}  // namespace idetcd::directive
