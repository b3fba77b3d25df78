#include "naming/watched_ranges.h"

#include <cctype>

#include "naming/keyspace.h"

namespace idetcd::naming {
namespace {

using store::KeyRange;

bool isOfNames(std::string_view text) {
  const auto allowed = [](unsigned char c) {
    return std::isdigit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= 255 && text.front() >= '0' &&
         std::all_of(text.begin(), text.end(), [&](char c) { return allowed(static_cast<unsigned char>(c)); });
}

bool isEndless(const KeyRange& range) { return range.end == std::string(1, '\0'); }

std::vector<KeyRange> merged(std::vector<KeyRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const KeyRange& a, const KeyRange& b) { return a.begin < b.begin; });
  std::vector<KeyRange> result;
  for (KeyRange& range : ranges) {
    if (result.empty() || (!isEndless(result.back()) && result.back().end < range.begin)) {
      result.push_back(std::move(range));
    } else if (!isEndless(result.back()) && (isEndless(range) || result.back().end < range.end)) {
      result.back().end = std::move(range.end);
    }
  }
  return result;
}

}  // namespace

Result<KeyRange> parseWatchedRange(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    if (!isOfNames(text)) return fail(fmt::format("'{}' is not the beginning of a name", text));
    return KeyRange::prefix(text);
  }
  const std::string_view from = text.substr(0, colon);
  const std::string_view to = text.substr(colon + 1);
  if (!isOfNames(from) || !isOfNames(to) || from >= to)
    return fail(fmt::format("'{}' is not a range FROM:TO of names, such as a:n", text));
  KeyRange range{std::string(from), std::string(to)};
  if (beatKey(range) >= range.end) return fail(fmt::format("the range '{}' is too small", text));
  return range;
}

std::vector<KeyRange> watchedRanges(const std::vector<std::string>& words, const slots::NamePattern& pattern) {
  if (words.empty()) return {watchedRange()};
  std::vector<KeyRange> ranges{slotRange(pattern)};
  for (const std::string& word : words) {
    if (word != "pattern") ranges.push_back(parseWatchedRange(word).value());
  }
  return merged(std::move(ranges));
}

bool isWatched(const std::vector<KeyRange>& ranges, std::string_view key) {
  return std::ranges::any_of(
      ranges, [key](const KeyRange& range) { return key >= range.begin && (isEndless(range) || key < range.end); });
}

}  // namespace idetcd::naming
