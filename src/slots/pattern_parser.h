// Reads the part of Go's text/template that makes a name out of a number: text, {{.ID}} and {{printf "FORMAT" .ID}},
// with blanks inside the braces as Go allows them. FORMAT is % or %0N with one of the verbs d, x, X and o. What else
// the language has is refused by its name, with what to write instead. Pure; any thread.
#pragma once

#include "base/result.h"
#include "slots/number_format.h"

namespace idetcd::slots {

// Text, number, text, …, number, text: there is one text more than numbers, and each may be empty.
struct PatternParts {
  std::vector<std::string> texts;
  std::vector<NumberFormat> numbers;
};

Result<PatternParts> parsePattern(std::string_view text);

}  // namespace idetcd::slots
