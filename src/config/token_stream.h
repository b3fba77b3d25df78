// The tokens of a Corefile with its imports spliced in: a stack of the files and snippets that are being read. One
// thread.
#pragma once

#include "base/result.h"
#include "config/environment.h"
#include "config/token.h"

namespace idetcd::config {

class TokenStream {
 public:
  explicit TokenStream(const Environment& environment) : environment_(environment) {}

  // Reads on in `text` until its end, then where it was before.
  Result<void> push(std::string_view file, std::string_view text);

  // The next token, or nullptr at the end of everything. Valid until the next call of any function.
  const Token* peek();
  // REQUIRES: peek() != nullptr.
  Token take();
  // The token that was taken last: where an unexpected end is reported. Before the first, an empty one in line 1.
  const Token& last() const { return last_; }

  // Keeps the body of a snippet for later imports.
  Result<void> defineSnippet(const Token& place, std::string name, std::vector<Token> body);
  // REQUIRES: `import` was just taken. Takes its argument and goes on in what that names: a snippet, a file, or the
  // files that a pattern matches.
  Result<void> import();

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  using Tokens = std::shared_ptr<const std::vector<Token>>;
  struct Source {
    std::string name;  // the snippet's or the file's, to detect cycles
    Tokens tokens;
    size_t next = 0;
  };

  Result<std::string> importArgument();
  Result<void> importFiles(const std::string& pattern);
  Result<void> pushSource(std::string name, Tokens tokens);
  Result<Tokens> readTokens(const std::string& shown_file, std::string_view text);

  const Environment& environment_;
  std::vector<Source> sources_;
  std::map<std::string, Tokens, std::less<>> snippets_;
  std::map<std::string, Tokens, std::less<>> files_;  // imported before: one reading serves all imports
  std::vector<std::string> warnings_;
  Token last_;
  size_t bytes_read_ = 0;
  size_t tokens_ = 0;
  size_t imports_ = 0;
};

}  // namespace idetcd::config
