#include "config/syntax.h"

#include "base/text.h"

namespace idetcd::config {

namespace {

constexpr std::string_view kWrite = "; write: ";

// Letters to insert, delete, replace or swap with their neighbour; the words are short.
size_t editDistance(std::string_view a, std::string_view b) {
  constexpr size_t kLongest = 40;
  if (a.size() > kLongest || b.size() > kLongest) return kLongest;
  std::array<std::array<size_t, kLongest + 1>, kLongest + 1> cost{};
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lowerCase(a[i - 1]) == lowerCase(b[j - 1]);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && lowerCase(a[i - 1]) == lowerCase(b[j - 2]) && lowerCase(a[i - 2]) == lowerCase(b[j - 1]);
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  size_t least = word.size() <= 4 ? 2 : 3;  // fewer edits than this
  for (const std::string_view candidate : known) {
    const size_t distance = editDistance(word, candidate);
    if (distance >= least || distance >= candidate.size()) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  if (const auto meant = nearest(word, known); !meant.empty()) return fmt::format(", did you mean '{}'?", meant);
  return fmt::format("{}one of {}", kWrite, fmt::join(known, ", "));
}

std::string withSyntax(std::string_view messages, std::string_view syntax) {
  std::string text;
  while (!messages.empty()) {
    const std::string_view line = messages.substr(0, messages.find('\n'));
    messages.remove_prefix(std::min(line.size() + 1, messages.size()));
    if (!text.empty()) text += '\n';
    text += line;
    const bool says = line.find(kWrite) != line.npos || line.find("did you mean") != line.npos;
    if (!says && !syntax.empty()) text += fmt::format("{}{}", kWrite, syntax);
  }
  return text;
}

}  // namespace idetcd::config
