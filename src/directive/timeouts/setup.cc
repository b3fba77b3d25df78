#include "directive/timeouts/setup.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "config/duration.h"
#include "config/option_table.h"

namespace idetcd::directive {

namespace {

constexpr std::chrono::seconds kMin(1);
constexpr std::chrono::hours kMax(24);

class TimeoutsParser {
 public:
  TimeoutsParser(config::DirectiveCursor& cursor, Timeouts& timeouts) : cursor_(cursor), timeouts_(timeouts) {}

  // `timeouts { … }`
  Result<void> parse() {
    const auto head = cursor_.args(0, 0);
    static constexpr config::OptionTable<TimeoutsParser, 3> kOptions{{
        {"read", "read DURATION, from 1s to 24h", &TimeoutsParser::readRead},
        {"write", "write DURATION, from 1s to 24h", &TimeoutsParser::readWrite},
        {"idle", "idle DURATION, from 1s to 24h", &TimeoutsParser::readIdle},
    }};
    if (!head) return config::readBlock(cursor_, *this, kOptions, nullptr, tl::unexpected(head.error()));
    if (auto read = config::readBlock(cursor_, *this, kOptions); !read) return read;
    if (!has_option_) return cursor_.error("timeouts without a block in which there is a read, write or idle");
    return {};
  }

 private:
  Result<void> readRead() { return readTo(timeouts_.read); }
  Result<void> readWrite() { return readTo(timeouts_.write); }
  Result<void> readIdle() { return readTo(timeouts_.idle); }

  Result<void> readTo(std::optional<std::chrono::milliseconds>& to) {
    has_option_ = true;
    const auto word = cursor_.oneArg();
    if (!word) return tl::unexpected(word.error());
    const auto duration = config::parseDurationOrSeconds(*word);
    if (!duration) return cursor_.error(duration.error().message);
    if (*duration < kMin || *duration > kMax) {
      return cursor_.error(fmt::format("'{}' is not from 1s to 24h", *word));
    }
    to = std::chrono::ceil<std::chrono::milliseconds>(*duration);
    return {};
  }

  config::DirectiveCursor& cursor_;
  Timeouts& timeouts_;
  bool has_option_ = false;  // in this block
};

}  // namespace

Result<void> TimeoutsDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  return TimeoutsParser(cursor, timeouts_).parse();
}

// A long idle time is for clients that have asked something: it is no reason to wait as long for the first query.
bool TimeoutsDirective::limitTcp(resolve::TcpLimits& limits) const {
  constexpr std::chrono::milliseconds kDefault = resolve::TcpLimits{}.idle;
  limits.idle = timeouts_.idle.value_or(kDefault);
  const auto unsaid = std::min(limits.idle, kDefault);
  limits.first = timeouts_.read.value_or(unsaid);
  limits.write = timeouts_.write.value_or(unsaid);
  return true;
}

const resolve::DirectiveType kTimeoutsDirective{.name = "timeouts",
                                                .syntax = "timeouts { read DURATION; write DURATION; idle DURATION }",
                                                .make = resolve::makeDirective<TimeoutsDirective>};

}  // namespace idetcd::directive
