#include "directive/tcp/setup.h"

#include <chrono>

#include <fmt/format.h>

#include "base/text.h"
#include "config/duration.h"
#include "config/option_table.h"

namespace idetcd::directive {

namespace {

constexpr size_t kMostPerClient = 1'000'000;
// What one datagram's answer over TCP needs, and what the option of RFC 7828 can say in 16 bits of 100 ms.
constexpr std::chrono::milliseconds kMinIdle{1000};
constexpr std::chrono::milliseconds kMaxIdle = std::chrono::hours(1);

class TcpParser {
 public:
  TcpParser(config::DirectiveCursor& cursor, std::optional<size_t>& max_per_client,
            std::optional<std::chrono::milliseconds>& idle)
      : cursor_(cursor), max_per_client_(max_per_client), idle_(idle) {}

  // `tcp { … }`
  Result<void> parse() {
    const auto head = cursor_.args(0, 0);
    static constexpr config::OptionTable<TcpParser, 2> kOptions{{
        {"max_per_client", "max_per_client N, from 1 to 1000000", &TcpParser::readMaxPerClient},
        {"idle", "idle DURATION, from 1s to 1h", &TcpParser::readIdle},
    }};
    return config::readBlock(cursor_, *this, kOptions, nullptr,
                             head ? Result<void>() : Result<void>(tl::unexpected(head.error())));
  }

 private:
  Result<void> readMaxPerClient() {
    const auto word = cursor_.oneArg();
    if (!word) return tl::unexpected(word.error());
    const auto number = parseNumber<size_t>(*word);
    if (!number || *number < 1 || *number > kMostPerClient) {
      return cursor_.error(fmt::format("'{}' is no number from 1 to {}", *word, kMostPerClient));
    }
    max_per_client_ = *number;
    return {};
  }

  Result<void> readIdle() {
    const auto word = cursor_.oneArg();
    if (!word) return tl::unexpected(word.error());
    const auto duration = config::parseDuration(*word);
    if (!duration) return cursor_.error(duration.error().message);
    if (*duration < kMinIdle || *duration > kMaxIdle) {
      return cursor_.error(fmt::format("'{}' is not from 1s to 1h", *word));
    }
    idle_ = std::chrono::floor<std::chrono::milliseconds>(*duration);
    return {};
  }

  config::DirectiveCursor& cursor_;
  std::optional<size_t>& max_per_client_;
  std::optional<std::chrono::milliseconds>& idle_;
};

}  // namespace

Result<void> TcpDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  return TcpParser(cursor, max_per_client_, idle_).parse();
}

// Over `timeouts`, which comes before it in the table.
bool TcpDirective::limitTcp(resolve::TcpLimits& limits) const {
  if (max_per_client_) limits.max_per_client = *max_per_client_;
  if (idle_) limits.idle = *idle_;
  return true;
}

const resolve::DirectiveType kTcpDirective{
    .name = "tcp", .syntax = "tcp { ... }", .make = resolve::makeDirective<TcpDirective>, .once = true};

}  // namespace idetcd::directive
