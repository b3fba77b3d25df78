// Splits the text of a Corefile into tokens. Pure; any thread.
//
//   - White space (Unicode's White_Space) ends a token; nothing else does. `worker{{.ID}}.tf.local.` is one token, and
//   a
//     brace is structural only when it stands alone.
//   - `"` opens a quote only at a token's start. Inside, `\"` is the only escape and newlines are text.
//   - `#` outside quotes starts a comment that ends with the line, even in the middle of a token.
//   - A byte order mark at the start is dropped, and `\r` outside quotes and in front of a newline.
#pragma once

#include "base/result.h"
#include "config/token.h"

namespace idetcd::config {

// Errors: a quote that is never closed, a NUL byte (a binary file by mistake).
Result<std::vector<Token>> tokenize(std::string_view file, std::string_view text);

}  // namespace idetcd::config
