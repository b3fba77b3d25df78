// Go's fmt.Sprintf, Sprint and Sprintln for whole numbers and strings, which is all that a name pattern can hold. What
// Go would print into the text as a mistake ("%!d(string=x)") is an error here. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"

namespace idetcd::cluster {

using GoValue = std::variant<int64_t, std::string>;

inline constexpr int kMaxFormatWidth = 255;          // of a width and of a precision: no name is longer
inline constexpr size_t kMaxFormattedLength = 4096;  // octets of one result

// Verbs: %v %d %b %o %O %x %X %c %q for numbers, %v %s %x %X %q for strings, and %%. Flags: + - # 0 and blank. Widths
// and precisions, also as *, and argument indexes like %[1]d.
Result<std::string> goSprintf(std::string_view format, std::span<const GoValue> args);
// A blank between two arguments if neither is a string.
std::string goSprint(std::span<const GoValue> args);
// A blank between any two, and a newline at the end.
std::string goSprintln(std::span<const GoValue> args);

}  // namespace idetcd::cluster
