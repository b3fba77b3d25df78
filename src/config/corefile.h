// A Corefile as plain values: its server blocks and their directives, in the order of the text, with snippets, imports
// and environment variables already resolved. What a directive means is not known here. Any thread.
//
//   Corefile    = { snippet | import | server block } .
//   snippet     = "(" NAME ")" "{" … "}" .
//   import      = "import" ( NAME | FILE | GLOB ) .     (wherever a key, a directive or a line of a block may begin)
//   server block = key { [","] key } ( "{" NL { directive } "}" | NL { directive } EOF ) .
//   directive   = NAME { ARGUMENT } [ "{" … "}" ] .     (to the end of the line, or of its block)
#pragma once

#include "base/result.h"
#include "config/environment.h"
#include "config/lexer.h"
#include "config/server_key.h"

namespace idetcd::config {

// The documents' word for an option that is not there.
struct OptionDefault {
  std::string_view name;
  std::string text;
};

// Suggestions for error messages. The one of `known` that `word` was probably meant to be; empty: none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

// ", did you mean 'limit'?", or "; write: one of endpoint, limit, …" where none is near.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

// The messages (one a line) with "; write: SYNTAX" after each that does not say yet what to write.
std::string withSyntax(std::string_view messages, std::string_view syntax);

struct Directive {
  std::string name;
  std::string file;
  int line = 0;
  std::vector<Token> tokens;  // behind the name; braces balance. Read them with a DirectiveCursor.
};

struct ServerBlock {
  std::string file;  // of the first key
  int line = 0;
  std::vector<ServerKey> keys;  // at least one
  std::vector<Directive> directives;
};

struct Corefile {
  std::vector<ServerBlock> blocks;
  std::vector<std::string> warnings;  // whole sentences; nothing that stops a start
};

struct ParseOptions {
  std::vector<std::string> known_directives;      // any other is an error; empty: all are known
  std::vector<std::string> foreign_directives{};  // errors too, that say whose these are
  uint16_t default_port = 53;                     // of keys that name none
  // The directive, if there is one, whose arguments name the addresses a block listens on: two blocks may serve the
  // same zone and port when each has it and they share no argument.
  std::string listen_directive;
  // Takes the errors after which the rest can still be read; null: the first error ends the reading.
  std::vector<Error>* errors = nullptr;
};

// Bounds against runaway imports. A Corefile anywhere near them is a mistake.
inline constexpr size_t kMaxInputBytes = size_t{4} << 20;  // all files together
inline constexpr size_t kMaxTokens = 1'000'000;            // after imports
inline constexpr size_t kMaxImports = 1'000;
inline constexpr size_t kMaxImportDepth = 100;

// `file_name` is what errors say and what imports are relative to. Errors are complete: "Corefile:3 - Error during
// parsing: …".
Result<Corefile> parseCorefile(std::string_view file_name, std::string_view text, const ParseOptions& options,
                               const Environment& environment);

}  // namespace idetcd::config
