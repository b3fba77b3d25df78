#include "plugin/tcp/setup.h"

#include <chrono>

#include <fmt/format.h>

#include "base/text.h"
#include "config/duration.h"
#include "config/option_table.h"

namespace idetcd::plugin {

namespace {

constexpr size_t kMostPerClient = 1'000'000;
// What one datagram's answer over TCP needs, and what the option of RFC 7828 can say in 16 bits of 100 ms.
constexpr std::chrono::milliseconds kMinIdle{1000};
constexpr std::chrono::milliseconds kMaxIdle = std::chrono::hours(1);

class TcpParser {
 public:
  explicit TcpParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  // `tcp { … }`
  Result<resolve::TcpLimits> parse() {
    const auto head = cursor_.args(0, 0);
    static constexpr config::OptionTable<TcpParser, 2> kOptions{{
        {"max_per_client", "max_per_client N, from 1 to 1000000", &TcpParser::readMaxPerClient},
        {"idle", "idle DURATION, from 1s to 1h", &TcpParser::readIdle},
    }};
    const auto read = config::readBlock(cursor_, *this, kOptions, nullptr,
                                        head ? Result<void>() : Result<void>(tl::unexpected(head.error())));
    if (!read) return tl::unexpected(read.error());
    return limits_;
  }

 private:
  Result<void> readMaxPerClient() {
    const auto word = cursor_.oneArg();
    if (!word) return tl::unexpected(word.error());
    const auto number = parseNumber<size_t>(*word);
    if (!number || *number < 1 || *number > kMostPerClient) {
      return cursor_.error(fmt::format("'{}' is no number from 1 to {}", *word, kMostPerClient));
    }
    limits_.max_per_client = *number;
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
    limits_.idle = std::chrono::floor<std::chrono::milliseconds>(*duration);
    return {};
  }

  config::DirectiveCursor& cursor_;
  resolve::TcpLimits limits_;
};

}  // namespace

Result<void> TcpDirective::read(config::DirectiveCursor& cursor, const resolve::Block&) {
  const auto limits = TcpParser(cursor).parse();
  if (!limits) return tl::unexpected(limits.error());
  limits_ = *limits;
  return {};
}

const resolve::DirectiveType kTcpDirective{
    .name = "tcp", .syntax = "tcp { ... }", .make = resolve::makeDirective<TcpDirective>, .once = true};

}  // namespace idetcd::plugin
