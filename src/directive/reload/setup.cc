// The directive `reload`: a Corefile that has changed is taken over without a signal.
#include "config/duration.h"
#include "directive/reload/corefile_watch.h"
#include "resolve/directive.h"

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

extern const resolve::DirectiveType kReloadDirective{
    .name = "reload", .syntax = "reload [INTERVAL] [JITTER]", .make = resolve::makeDirective<ReloadDirective>};

}  // namespace idetcd::directive
