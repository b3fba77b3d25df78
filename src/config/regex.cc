#include "config/regex.h"

#include <re2/re2.h>

#include "base/text.h"

namespace idetcd::config {

Result<std::shared_ptr<const re2::RE2>> compileRegex(const std::string& text) {
  if (text.size() > kMaxRegexSize) return fail(fmt::format("a regular expression of more than {} bytes", kMaxRegexSize));
  re2::RE2::Options options(re2::RE2::Quiet);
  options.set_max_mem(kMaxRegexMemory);
  auto regex = std::make_shared<const re2::RE2>(text, options);
  if (!regex->ok()) return fail(fmt::format("'{}' is no regular expression: {}", printable(text), regex->error()));
  return regex;
}

std::optional<std::vector<std::string_view>> matchRegex(const re2::RE2& regex, std::string_view text) {
  const int count = regex.NumberOfCapturingGroups() + 1;
  std::vector<re2::StringPiece> groups(static_cast<size_t>(count));
  if (!regex.Match(text, 0, text.size(), re2::RE2::UNANCHORED, groups.data(), count)) return std::nullopt;
  std::vector<std::string_view> found;
  found.reserve(groups.size());
  for (const auto& group : groups) found.emplace_back(group.data(), group.size());
  return found;
}

}  // namespace idetcd::config
