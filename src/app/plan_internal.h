// For app/plan*.cc only: the readers of single directives, and what they share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/plan.h"
#include "config/directive_cursor.h"

namespace idetcd::app {

using config::DirectiveCursor;
using Strings = std::vector<std::string>;

// The whole text as a decimal number.
std::optional<int64_t> parseInteger(std::string_view text);

// The options of a directive's block, each with the member function that reads the rest of its line.
template <typename Parser>
using OptionReader = Result<void> (Parser::*)();
template <typename Parser, size_t N>
using OptionTable = std::array<std::pair<std::string_view, OptionReader<Parser>>, N>;

// Reads the block to its end, and with it the directive. `other` reads a line that begins with none of the options.
template <typename Parser, size_t N>
Result<void> readBlock(DirectiveCursor& cursor, Parser& parser, const OptionTable<Parser, N>& options,
                       OptionReader<Parser> other = nullptr) {
  while (cursor.nextBlock()) {
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&cursor](const auto& entry) { return entry.first == cursor.value(); });
    const OptionReader<Parser> reader = option != options.end() ? option->second : other;
    if (reader == nullptr) return cursor.error(fmt::format("unknown property '{}'", cursor.value()));
    if (auto read = (parser.*reader)(); !read) return read;
  }
  return cursor.finish();
}

// An option without arguments.
inline Result<void> readFlag(DirectiveCursor& cursor, bool& flag) {
  if (cursor.nextArg()) return cursor.argError();
  flag = true;
  return {};
}

// Zones as arguments: names, or networks that stand for their reverse zones.
Result<std::vector<dns::Name>> parseZones(const DirectiveCursor& cursor, const Strings& arguments);

Result<ClusterPlan> parseCluster(const config::Directive& directive);
Result<CachePlan> parseCache(const config::Directive& directive);
Result<resolve::Forwarder::Options> parseForward(const config::Directive& directive);
Result<resolve::HostsOptions> parseHosts(const config::Directive& directive,
                                         const std::vector<config::ServerKey>& keys);
Result<resolve::Acl::RuleSet> parseAcl(const config::Directive& directive, const std::vector<config::ServerKey>& keys);

}  // namespace idetcd::app
