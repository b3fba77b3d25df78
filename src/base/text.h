// ASCII text. Pure; any thread.
#pragma once

#include <charconv>
#include <concepts>
#include <system_error>

#include "base/std.h"

namespace idetcd {

// Of ASCII letters only, whatever the locale.
constexpr char lowerCase(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }
std::string lowerCase(std::string_view text);

constexpr bool isDigit(char c) { return c >= '0' && c <= '9'; }

// The number that the whole text is: digits, after a '-' if T has a sign. Nothing: it is none, or not one of T's.
template <std::integral T>
std::optional<T> parseNumber(std::string_view text, int base = 10) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value, base);
  return error == std::errc() && last == end ? std::optional(value) : std::nullopt;
}

// Foreign text for messages and the log: \xNN for all but printable ASCII, cut off after 100 bytes.
std::string printable(std::string_view text);

}  // namespace idetcd
