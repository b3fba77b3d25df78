// Suggestions for error messages. Any thread.
#pragma once

#include "base/std.h"

namespace idetcd::config {

// The documents' word for an option that is not there.
struct OptionDefault {
  std::string_view name;
  std::string text;
};

// The one of `known` that `word` was probably meant to be; empty: none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

// ", did you mean 'limit'?", or "; write: one of endpoint, limit, …" where none is near.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

// The messages (one a line) with "; write: SYNTAX" after each that does not say yet what to write.
std::string withSyntax(std::string_view messages, std::string_view syntax);

}  // namespace idetcd::config
