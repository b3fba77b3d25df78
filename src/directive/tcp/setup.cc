#include "directive/tcp/setup.h"

#include "config/option_table.h"

namespace idetcd::directive {

namespace {

const config::Options<TcpSettings>& options() {
  using namespace config;
  using namespace std::chrono_literals;
  // As idle time: what one datagram's answer over TCP needs, and what the option of RFC 7828 can say in 16 bits of 100 ms.
  static const config::Options<TcpSettings> kOptions{
      {"max_per_client", "max_per_client N, from 1 to 1000000",
       number(&TcpSettings::max_per_client, 1, 1'000'000).orElse(fmt::to_string(resolve::TcpLimits{}.max_per_client))},
      {"idle", "idle DURATION, from 1s to 1h",
       duration(&TcpSettings::idle, {.least = 1s, .most = 1h}).orElse(durationText(resolve::TcpLimits{}.idle))},
  };
  return kOptions;
}

}  // namespace

Result<void> TcpDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  return options().read(cursor, settings_);
}

// Over `timeouts`, which comes before it in the table.
bool TcpDirective::limitTcp(resolve::TcpLimits& limits) const {
  if (settings_.max_per_client) limits.max_per_client = *settings_.max_per_client;
  if (settings_.idle) limits.idle = *settings_.idle;
  return true;
}

const resolve::DirectiveType kTcpDirective{
    .name = "tcp", .syntax = "tcp { ... }", .make = resolve::makeDirective<TcpDirective>, .once = true};

}  // namespace idetcd::directive
