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
#include "app/syntax.h"
#include "config/directive_cursor.h"

namespace idetcd::app {

using config::DirectiveCursor;
using Strings = std::vector<std::string>;

// The whole text as a decimal number.
std::optional<int64_t> parseInteger(std::string_view text);

// Errors of which each is complete, one a line. Each is said once (a snippet may be imported often), and at most kMost.
class Problems {
 public:
  void add(const tl::unexpected<Error>& error) { add(error.value().message); }
  void add(const std::string& message) {
    if (std::find(messages_.begin(), messages_.end(), message) != messages_.end()) return;
    if (messages_.size() < kMost) messages_.push_back(message);
  }
  bool empty() const { return messages_.empty(); }
  Result<void> result() const { return empty() ? Result<void>() : fail(fmt::format("{}", fmt::join(messages_, "\n"))); }

 private:
  static constexpr size_t kMost = 100;
  Strings messages_;
};

// The options of a directive's block, each with the member function that reads the rest of its line.
template <typename Parser>
using OptionReader = Result<void> (Parser::*)();
template <typename Parser, size_t N>
using OptionTable = std::array<std::pair<std::string_view, OptionReader<Parser>>, N>;

// Reads the block to its end, and with it the directive. `other` reads a line that begins with none of the options.
// All errors of the block are in the one that is returned, a line each, with what to write instead.
template <typename Parser, size_t N>
Result<void> readBlock(DirectiveCursor& cursor, Parser& parser, const OptionTable<Parser, N>& options,
                       OptionReader<Parser> other = nullptr) {
  Problems problems;
  while (cursor.nextBlock()) {
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&cursor](const auto& entry) { return entry.first == cursor.value(); });
    const OptionReader<Parser> reader = option != options.end() ? option->second : other;
    if (reader == nullptr) {
      std::array<std::string_view, N> names;
      std::transform(options.begin(), options.end(), names.begin(), [](const auto& entry) { return entry.first; });
      problems.add(
          cursor.error(fmt::format("unknown property '{}'{}", cursor.value(), suggestion(cursor.value(), names))));
      if (cursor.value() == "{") return problems.result();  // what belongs to which block is a guess from here
      cursor.remainingArgs();
      continue;
    }
    const std::string name = cursor.value();
    const auto read = (parser.*reader)();
    if (!read) problems.add(withSyntax(read.error().message, syntaxOf(cursor.directive(), name)));
    if (read && cursor.nextArg())
      problems.add(withSyntax(cursor.argError().value().message, syntaxOf(cursor.directive(), name)));
    cursor.remainingArgs();
  }
  if (const auto finished = cursor.finish(); !finished) problems.add(finished.error().message);
  return problems.result();
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
