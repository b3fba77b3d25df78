// What go_template is made of: a template as it was parsed, its parser, and the functions of Go that it may call. For
// go_template*.cc only. Any thread.
#pragma once

#include "directive/template/go_template.h"

namespace idetcd::directive {

namespace template_parts {

enum class TemplateField : uint8_t {
  kZone,
  kName,
  kClass,
  kType,
  kRemote,
  kMatch,
  kGroup,
  kQuestionName,
  kQuestionType,
  kQuestionClass,
};

using List = std::vector<std::string>;
using Map = std::map<std::string, std::string, std::less<>>;
using Value = std::variant<std::string, int64_t, bool, List, Map>;

struct Function {
  std::string_view name;
  size_t least;  // arguments
  size_t most;
  Result<Value> (*call)(const std::vector<Value>& values);
};

struct Pipeline;

// .Group.NAME
struct GroupName {
  std::string name;
};

struct Operand {
  std::variant<Value, TemplateField, GroupName, std::shared_ptr<const Pipeline>> what;
};

// A call, or one operand.
struct Command {
  const Function* function = nullptr;
  std::vector<Operand> operands;
};

// Each command gets the value of the one before as its last argument.
struct Pipeline {
  std::vector<Command> commands;
};

// As Go prints it.
std::string textOf(const Value& value);
// As Go's `if` sees it.
bool isTrue(const Value& value);

// Null: there is none of this name. Its `call` is null where it evaluates no more than it needs: `and` and `or`.
const Function* findFunction(std::string_view name);
// The verbs of a format of printf that take a value; nothing: one is none of ours.
std::optional<size_t> countVerbs(std::string_view format);

// The names and numbers of groups that the template asks for are added to `groups`.
Result<std::vector<GoTemplate::Node>> parseTemplate(std::string_view text, std::vector<std::string>& groups);

}  // namespace template_parts

// Text, a value to be printed, or a condition.
struct GoTemplate::Node {
  enum class Kind : uint8_t { kText, kPrint, kIf };
  Kind kind = Kind::kText;
  std::string text{};
  template_parts::Pipeline pipeline{};
  std::vector<Node> then{};
  std::vector<Node> otherwise{};
};

}  // namespace idetcd::directive
