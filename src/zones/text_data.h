// Bytes from the forms in which a master file writes them. Each appends to `to`; false: the text is none. Any thread.
#pragma once

#include "base/result.h"

namespace idetcd::zones {

// An even number of digits.
bool decodeHex(std::string_view text, std::vector<uint8_t>& to);
// With padding.
bool decodeBase64(std::string_view text, std::vector<uint8_t>& to);
// Without padding (RFC 4648 §7, RFC 5155 §3.3).
bool decodeBase32Hex(std::string_view text, std::vector<uint8_t>& to);
// Plain characters, \DDD and \X.
bool unescape(std::string_view text, std::vector<uint8_t>& to);

// The error of a word: "'x' is no type".
tl::unexpected<Error> notA(std::string_view text, std::string_view what);

}  // namespace idetcd::zones
