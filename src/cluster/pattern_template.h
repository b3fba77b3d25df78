// The part of Go's text/template that can make a name out of a number: {{.ID}}, printf, print, println, pipelines,
// parentheses, string, character and whole-number constants, comments and trim markers. Everything else of the language
// (variables, if, range, other fields and functions) is refused by name. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cluster/go_format.h"

namespace idetcd::cluster {

class PatternTemplate {
 public:
  // What does not depend on .ID is computed here, once, and is text from then on.
  static Result<PatternTemplate> parse(std::string_view text);

  // Fails if Go would have printed a mistake into the text. Whether it does depends on `id` only through lengths.
  Result<std::string> render(int64_t id) const;

  bool usesId() const;
  // The text in front of the first output that depends on .ID, and behind the last. REQUIRES: usesId().
  std::string_view prefix() const;
  std::string_view suffix() const;

 private:
  friend class TemplateParser;

  enum class Function : uint8_t { kPrint, kPrintf, kPrintln };

  // A constant, .ID, or a call. A pipeline is a call whose last argument is what was piped in.
  struct Expression {
    enum class Kind : uint8_t { kConstant, kId, kCall };
    Kind kind = Kind::kConstant;
    GoValue constant;
    Function function = Function::kPrint;
    std::vector<Expression> args;
    bool usesId() const;
  };

  static Result<GoValue> evaluate(const Expression& expression, int64_t id);
  static Result<GoValue> call(Function function, const std::vector<GoValue>& args);

  std::vector<Expression> pieces_;  // constants are strings, and never two in a row
};

}  // namespace idetcd::cluster
