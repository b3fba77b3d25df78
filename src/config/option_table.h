// Reads the block of a directive by a table of its options, and collects all that is wrong with it. Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "base/result.h"
#include "config/directive_cursor.h"
#include "config/syntax.h"

namespace idetcd::config {

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
  std::vector<std::string> messages_;
};

template <typename Parser>
using OptionReader = Result<void> (Parser::*)();

// One option: its name, the line to write instead of a wrong one, and the member function that reads the rest of its
// line.
template <typename Parser>
struct Option {
  std::string_view name;
  std::string_view syntax;
  OptionReader<Parser> read;
};
template <typename Parser, size_t N>
using OptionTable = std::array<Option<Parser>, N>;

// Reads the block to its end, and with it the directive. `other` reads a line that begins with none of the options.
// All errors of the block are in the one that is returned, a line each, with what to write instead; before them those
// of `head`, which is what the directive's own line came to.
template <typename Parser, size_t N>
Result<void> readBlock(DirectiveCursor& cursor, Parser& parser, const OptionTable<Parser, N>& options,
                       std::type_identity_t<OptionReader<Parser>> other = nullptr, const Result<void>& head = {}) {
  Problems problems;
  if (!head) problems.add(head.error().message);
  while (cursor.nextBlock()) {
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&cursor](const auto& entry) { return entry.name == cursor.value(); });
    const OptionReader<Parser> reader = option != options.end() ? option->read : other;
    if (reader == nullptr) {
      std::array<std::string_view, N> names;
      std::transform(options.begin(), options.end(), names.begin(), [](const auto& entry) { return entry.name; });
      problems.add(
          cursor.error(fmt::format("unknown property '{}'{}", cursor.value(), suggestion(cursor.value(), names))));
      if (cursor.value() == "{") return problems.result();  // what belongs to which block is a guess from here
      cursor.remainingArgs();
      continue;
    }
    const std::string_view syntax = option != options.end() ? option->syntax : std::string_view{};
    const auto read = (parser.*reader)();
    if (!read) problems.add(withSyntax(read.error().message, syntax));
    if (read && cursor.nextArg()) problems.add(withSyntax(cursor.argError().value().message, syntax));
    cursor.remainingArgs();
  }
  if (const auto finished = cursor.finish(); !finished) problems.add(finished.error().message);
  return problems.result();
}

}  // namespace idetcd::config
