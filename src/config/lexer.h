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

namespace idetcd::config {

// The words of a Corefile, each with the place where it stands. Plain values; any thread.
struct Token {
  // A brace is structural only as a whole, unquoted token as it stood in the file: neither a quoted "{" nor an
  // environment variable whose value is "{" opens a block.
  enum class Kind : uint8_t { kWord, kQuoted, kOpenBrace, kCloseBrace };

  std::string text;
  std::shared_ptr<const std::string> file;
  int line = 0;
  Kind kind = Kind::kWord;
  // True for the first token of a line, and for the first one that an import brings in: where a directive can begin.
  // Line numbers alone do not show that: an imported token may carry a lower number than the one before it.
  bool starts_line = false;

  bool opens() const { return kind == Kind::kOpenBrace; }
  bool closes() const { return kind == Kind::kCloseBrace; }
};

// `FILE:LINE - Error during parsing: TEXT`, the complete form of every error of a Corefile.
tl::unexpected<Error> errorAt(std::string_view file, int line, std::string_view text);
inline tl::unexpected<Error> errorAt(const Token& token, std::string_view text) {
  return errorAt(*token.file, token.line, text);
}

// Errors: a quote that is never closed, a NUL byte (a binary file by mistake).
Result<std::vector<Token>> tokenize(std::string_view file, std::string_view text);

}  // namespace idetcd::config
