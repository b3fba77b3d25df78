// JSON as nlohmann::json reads and writes it. Its parser and serialiser are compiled here and nowhere else: that takes
// seconds. Any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "base/std.h"

namespace idetcd {

// `is_discarded()` if the text is no JSON.
nlohmann::json parseJson(std::string_view text);

// Without a line end. What is no UTF-8 becomes U+FFFD: strangers write names. `indent` below 0: one line.
std::string toText(const nlohmann::json& value);
std::string toText(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace idetcd
