#include "directive/timeouts/setup.h"

#include <algorithm>

#include "config/option_table.h"

namespace idetcd::directive {

namespace {

const config::Options<Timeouts>& options() {
  using namespace config;
  using namespace std::chrono_literals;
  constexpr config::DurationRange kRange{.least = 1s, .most = 24h, .bare_seconds = true};
  const std::string unsaid = durationText(resolve::TcpLimits{}.idle);
  static const config::Options<Timeouts> kOptions{
      {"read", "read DURATION, from 1s to 24h", duration(&Timeouts::read, kRange).orElse(unsaid)},
      {"write", "write DURATION, from 1s to 24h", duration(&Timeouts::write, kRange).orElse(unsaid)},
      {"idle", "idle DURATION, from 1s to 24h", duration(&Timeouts::idle, kRange).orElse(unsaid)},
  };
  return kOptions;
}

}  // namespace

Result<void> TimeoutsDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  Timeouts said;
  if (auto read = options().read(cursor, said); !read) return read;
  if (!said.read && !said.write && !said.idle)
    return cursor.error("timeouts without a block in which there is a read, write or idle");
  for (const auto field : {&Timeouts::read, &Timeouts::write, &Timeouts::idle}) {
    if (said.*field) timeouts_.*field = said.*field;
  }
  return {};
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
                                                .make = resolve::makeDirective<TimeoutsDirective>,
                                                .defaults = [] { return options().defaults(); }};

}  // namespace idetcd::directive
