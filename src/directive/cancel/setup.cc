#include "directive/cancel/setup.h"

#include <algorithm>

#include <fmt/format.h>

#include "config/duration.h"

namespace idetcd::directive {

namespace {

// More is no limit: every query is answered sooner. So clocks do not overflow.
constexpr std::chrono::milliseconds kMost = std::chrono::hours(24);

}  // namespace

Result<void> CancelDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  const auto words = cursor.args(0, 1);
  if (!words) return tl::unexpected(words.error());
  if (words->empty()) {
    timeout_ = CancelDirective().timeout_;
    return cursor.finish();
  }
  const std::string& word = words->front();
  const auto duration = config::parseDuration(word);
  if (!duration) return cursor.error(duration.error().message);
  if (duration->count() <= 0) return cursor.error(fmt::format("a duration above 0 is needed, not '{}'", word));
  timeout_ = std::min(std::chrono::ceil<std::chrono::milliseconds>(*duration), kMost);
  return cursor.finish();
}

const resolve::DirectiveType kCancelDirective{
    .name = "cancel", .syntax = "cancel [TIMEOUT]", .make = resolve::makeDirective<CancelDirective>};

}  // namespace idetcd::directive
