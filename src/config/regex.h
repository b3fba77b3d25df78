// Regular expressions of the Corefile, in the syntax of RE2, as Go's: matched in linear time. Any thread.
#pragma once

#include "base/result.h"

namespace re2 {
class RE2;
}

namespace idetcd::config {

inline constexpr size_t kMaxRegexSize = 1024;         // bytes of its text
inline constexpr int64_t kMaxRegexMemory = 1 << 20;  // bytes that one may take

// The error is a text without a place.
Result<std::shared_ptr<const re2::RE2>> compileRegex(const std::string& text);

// The groups of the first match, the whole match first; a group that took no part is empty. Nothing: no match.
std::optional<std::vector<std::string_view>> matchRegex(const re2::RE2& regex, std::string_view text);

}  // namespace idetcd::config
