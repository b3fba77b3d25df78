#include "directive/zonelimit/setup.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "config/arguments.h"
#include "config/option_table.h"

namespace idetcd::directive {

namespace {

using Options = resolver::ZoneLimiter::Options;

constexpr int64_t kMaxOutstanding = 1'000'000;

class ZonelimitParser {
 public:
  explicit ZonelimitParser(config::DirectiveCursor& cursor) : cursor_(cursor) {}

  // `zonelimit [OUTSTANDING] [ZONES…] { … }`
  Result<Options> parse(const resolve::Block& block) {
    const auto head = readHead(block);
    static constexpr config::OptionTable<ZonelimitParser, 1> kOptions{{
        {"suffix", "suffix NAMES..., like suffix dyn.example.org", &ZonelimitParser::readSuffix},
    }};
    if (auto read = config::readBlock(cursor_, *this, kOptions, nullptr, head); !read) {
      return tl::unexpected(read.error());
    }
    return std::move(options_);
  }

 private:
  Result<void> readHead(const resolve::Block& block) {
    std::vector<std::string> words = cursor_.remainingArgs();
    if (const auto number = words.empty() ? std::nullopt : parseNumber<int64_t>(words.front())) {
      if (*number < 1 || *number > kMaxOutstanding) {
        return cursor_.error(fmt::format("'{}' is no number from 1 to {}", *number, kMaxOutstanding));
      }
      options_.outstanding = static_cast<size_t>(*number);
      words.erase(words.begin());
    }
    auto zones = config::parseZonesOr(block.keys, cursor_, words);
    if (!zones) return tl::unexpected(zones.error());
    options_.zones = std::move(*zones);
    return {};
  }

  Result<void> readSuffix() {
    const auto names = cursor_.args(1);
    if (!names) return tl::unexpected(names.error());
    auto zones = config::parseZones(cursor_, *names);
    if (!zones) return tl::unexpected(zones.error());
    options_.suffixes.insert(options_.suffixes.end(), zones->begin(), zones->end());
    return {};
  }

  config::DirectiveCursor& cursor_;
  Options options_;
};

}  // namespace

Result<void> ZonelimitDirective::read(config::DirectiveCursor& cursor, const resolve::Block& block) {
  auto options = ZonelimitParser(cursor).parse(block);
  if (!options) return tl::unexpected(options.error());
  options_ = std::move(*options);
  return {};
}

const resolve::DirectiveType kZonelimitDirective{.name = "zonelimit",
                                                 .syntax = "zonelimit [OUTSTANDING] [ZONES...] [{ suffix NAMES... }]",
                                                 .make = resolve::makeDirective<ZonelimitDirective>,
                                                 .once = true};

}  // namespace idetcd::directive
