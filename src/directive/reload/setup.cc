#include "directive/reload/setup.h"

#include "config/duration.h"

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

}  // namespace

// `reload [INTERVAL] [JITTER]`
Result<void> ReloadDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
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

Result<void> ReloadDirective::prepare(resolve::Process& process, const resolve::Block&) {
  watch_ = &process.state<CorefileWatch>();
  return {};
}

void ReloadDirective::start() { watch_->add(settings_); }

void ReloadDirective::stop() { watch_->remove(settings_); }

const resolve::DirectiveType kReloadDirective{
    .name = "reload", .syntax = "reload [INTERVAL] [JITTER]", .make = resolve::makeDirective<ReloadDirective>};

}  // namespace idetcd::directive
