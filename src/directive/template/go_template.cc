#include "directive/template/go_template.h"

#include "base/text.h"

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

namespace {

using template_parts::Command;
using template_parts::TemplateField;
using template_parts::Function;
using template_parts::GroupName;
using template_parts::List;
using template_parts::Map;
using template_parts::Operand;
using template_parts::Pipeline;
using template_parts::Value;

constexpr size_t kMaxDepth = 16;  // of parentheses, and of `if`
constexpr size_t kMaxWidth = 255;  // in a format

Value valueOf(TemplateField field, const TemplateData& data) {
  switch (field) {
    case TemplateField::kZone:
      return data.zone;
    case TemplateField::kName:
      return data.name;
    case TemplateField::kClass:
      return data.rr_class;
    case TemplateField::kType:
      return data.type;
    case TemplateField::kRemote:
      return data.remote;
    case TemplateField::kMatch:
      return data.match;
    case TemplateField::kGroup:
      return data.group;
    case TemplateField::kQuestionName:
      return data.question.name;
    case TemplateField::kQuestionType:
      return data.question.type;
    case TemplateField::kQuestionClass:
      return data.question.rr_class;
  }
  return false;
}

// As Go prints it.
std::string textOf(const Value& value) {
  struct Print {
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(int64_t number) const { return fmt::to_string(number); }
    std::string operator()(bool truth) const { return truth ? "true" : "false"; }
    std::string operator()(const List& list) const { return fmt::format("[{}]", fmt::join(list, " ")); }
    std::string operator()(const Map& map) const {
      std::string text;
      for (const auto& [key, item] : map) text += (text.empty() ? "" : " ") + key + ":" + item;
      return "map[" + text + "]";
    }
  };
  return std::visit(Print(), value);
}

bool isTrue(const Value& value) {
  struct Truth {
    bool operator()(int64_t number) const { return number != 0; }
    bool operator()(bool truth) const { return truth; }
    bool operator()(const std::string& text) const { return !text.empty(); }
    bool operator()(const List& list) const { return !list.empty(); }
    bool operator()(const Map& map) const { return !map.empty(); }
  };
  return std::visit(Truth(), value);
}

using Values = std::vector<Value>;

// -1, 0, 1. Numbers, texts, or truths for equality alone.
Result<int> compare(const Value& a, const Value& b, bool for_order) {
  if (a.index() != b.index()) return fail("values of different types are compared");
  if (const auto* text = std::get_if<std::string>(&a)) {
    const int order = text->compare(std::get<std::string>(b));
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (const auto* number = std::get_if<int64_t>(&a)) {
    const int64_t other = std::get<int64_t>(b);
    return *number < other ? -1 : *number > other ? 1 : 0;
  }
  const bool* truth = std::get_if<bool>(&a);
  if (truth == nullptr || for_order) return fail("these values cannot be compared");
  return *truth == std::get<bool>(b) ? 0 : 1;
}

Result<Value> order(const Values& values, bool (*holds)(int)) {
  const auto compared = compare(values[0], values[1], true);
  if (!compared) return tl::unexpected(compared.error());
  return Value(holds(*compared));
}

// Whether the first one equals one of the others.
Result<Value> equal(const Values& values) {
  for (size_t i = 1; i < values.size(); ++i) {
    const auto compared = compare(values[0], values[i], false);
    if (!compared) return tl::unexpected(compared.error());
    if (*compared == 0) return Value(true);
  }
  return Value(false);
}

Result<Value> notEqual(const Values& values) {
  const auto same = equal(values);
  if (!same) return same;
  return Value(!std::get<bool>(*same));
}

Result<Value> indexOf(const Values& values) {
  if (const auto* list = std::get_if<List>(&values[0])) {
    const auto* at = std::get_if<int64_t>(&values[1]);
    if (at == nullptr) return fail("index: the index of a list is a number");
    if (*at < 0 || static_cast<size_t>(*at) >= list->size()) return fail(fmt::format("index: {} is out of range", *at));
    return Value((*list)[static_cast<size_t>(*at)]);
  }
  const auto* map = std::get_if<Map>(&values[0]);
  const auto* key = std::get_if<std::string>(&values[1]);
  if (map == nullptr || key == nullptr) return fail("index: there is nothing of this kind to look up");
  const auto found = map->find(*key);
  return Value(found != map->end() ? found->second : std::string());
}

Result<Value> lengthOf(const Values& values) {
  if (const auto* text = std::get_if<std::string>(&values[0])) return Value(static_cast<int64_t>(text->size()));
  if (const auto* list = std::get_if<List>(&values[0])) return Value(static_cast<int64_t>(list->size()));
  if (const auto* map = std::get_if<Map>(&values[0])) return Value(static_cast<int64_t>(map->size()));
  return fail("len: a number has no length");
}

// `parseInt TEXT BASE BITS`: CoreDNS's, strconv.ParseUint.
Result<Value> parseInteger(const Values& values) {
  const auto* text = std::get_if<std::string>(&values[0]);
  const auto* base = std::get_if<int64_t>(&values[1]);
  const auto* bits = std::get_if<int64_t>(&values[2]);
  if (text == nullptr || base == nullptr || bits == nullptr) return fail("parseInt needs a text and two numbers");
  if (*base < 2 || *base > 36 || *bits < 0 || *bits > 64) return fail("parseInt: a wrong base or size");
  const auto number = parseNumber<uint64_t>(*text, static_cast<int>(*base));
  const bool fits = number && (*bits == 0 || *bits == 64 || *number >> *bits == 0) &&
                    *number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!fits) return fail(fmt::format("parseInt: '{}' is no number of {} bits", printable(*text), *bits));
  return Value(static_cast<int64_t>(*number));
}

Result<Value> printAll(const Values& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    // As Go's Sprint: a blank between two of which neither is a text.
    const bool is_text = std::holds_alternative<std::string>(values[i]);
    if (i > 0 && !is_text && !std::holds_alternative<std::string>(values[i - 1])) text += ' ';
    text += textOf(values[i]);
  }
  return Value(text);
}

// %[-0][WIDTH]VERB, behind the percent sign.
struct Verb {
  bool left = false;
  bool zeros = false;
  size_t width = 0;
  char verb = 0;
};

// Advances `pos` behind the verb. Nothing: it is none of ours.
std::optional<Verb> readVerb(std::string_view format, size_t& pos) {
  Verb verb;
  for (; pos < format.size() && (format[pos] == '-' || format[pos] == '0'); ++pos)
    (format[pos] == '-' ? verb.left : verb.zeros) = true;
  for (; pos < format.size() && isDigit(format[pos]); ++pos) {
    verb.width = verb.width * 10 + static_cast<size_t>(format[pos] - '0');
    if (verb.width > kMaxWidth) return std::nullopt;
  }
  if (pos == format.size() || std::string_view("sdvxXob%").find(format[pos]) == std::string_view::npos)
    return std::nullopt;
  verb.verb = format[pos++];
  return verb;
}

std::string hexOf(std::string_view text, bool upper) {
  std::string hex;
  for (const char c : text) hex += fmt::format(fmt::runtime(upper ? "{:02X}" : "{:02x}"), static_cast<uint8_t>(c));
  return hex;
}

// Nothing: the value is not for the verb.
std::optional<std::string> formatOne(char verb, const Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    switch (verb) {
      case 'd':
      case 'v':
        return fmt::to_string(*number);
      case 'x':
        return fmt::format("{:x}", *number);
      case 'X':
        return fmt::format("{:X}", *number);
      case 'o':
        return fmt::format("{:o}", *number);
      case 'b':
        return fmt::format("{:b}", *number);
      default:
        return std::nullopt;
    }
  }
  if (verb == 'v') return textOf(value);
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return std::nullopt;
  if (verb == 's') return *text;
  if (verb == 'x' || verb == 'X') return hexOf(*text, verb == 'X');
  return std::nullopt;
}

std::string pad(const Verb& verb, std::string text) {
  if (text.size() >= verb.width) return text;
  const size_t missing = verb.width - text.size();
  if (verb.left) return text + std::string(missing, ' ');
  if (!verb.zeros) return std::string(missing, ' ') + text;
  const size_t sign = text.starts_with('-') ? 1 : 0;
  return text.substr(0, sign) + std::string(missing, '0') + text.substr(sign);
}

// The verbs that take a value; nothing: one is none of ours.
std::optional<size_t> countVerbs(std::string_view format) {
  size_t count = 0;
  for (size_t pos = 0; pos < format.size();) {
    if (format[pos++] != '%') continue;
    const auto verb = readVerb(format, pos);
    if (!verb) return std::nullopt;
    if (verb->verb != '%') ++count;
  }
  return count;
}

// REQUIRES: the first is a format, and the others are as many as it has verbs.
Result<Value> formatAll(const Values& values) {
  const auto& format = std::get<std::string>(values[0]);
  std::string text;
  size_t next = 1;
  for (size_t pos = 0; pos < format.size();) {
    if (format[pos] != '%') {
      text += format[pos++];
      continue;
    }
    const Verb verb = *readVerb(format, ++pos);
    if (verb.verb == '%') {
      text += '%';
      continue;
    }
    auto one = formatOne(verb.verb, values[next]);
    if (!one) return fail(fmt::format("printf: %{} is not for '{}'", verb.verb, printable(textOf(values[next]))));
    text += pad(verb, std::move(*one));
    ++next;
  }
  return Value(text);
}

constexpr size_t kMany = 64;
constexpr Function kFunctions[]{
    {"and", 1, kMany, nullptr},  // these two evaluate no more than they need
    {"or", 1, kMany, nullptr},
    {"eq", 2, kMany, equal},
    {"ne", 2, 2, notEqual},
    {"lt", 2, 2, [](const Values& values) { return order(values, [](int o) { return o < 0; }); }},
    {"le", 2, 2, [](const Values& values) { return order(values, [](int o) { return o <= 0; }); }},
    {"gt", 2, 2, [](const Values& values) { return order(values, [](int o) { return o > 0; }); }},
    {"ge", 2, 2, [](const Values& values) { return order(values, [](int o) { return o >= 0; }); }},
    {"not", 1, 1, [](const Values& values) { return Result<Value>(Value(!isTrue(values[0]))); }},
    {"index", 2, 2, indexOf},
    {"len", 1, 1, lengthOf},
    {"parseInt", 3, 3, parseInteger},
    {"print", 0, kMany, printAll},
    {"printf", 1, kMany, formatAll},
};

Result<Value> evaluate(const Pipeline& pipeline, const TemplateData& data);

Result<Value> evaluate(const Operand& operand, const TemplateData& data) {
  if (const auto* value = std::get_if<Value>(&operand.what)) return *value;
  if (const auto* field = std::get_if<TemplateField>(&operand.what)) return valueOf(*field, data);
  if (const auto* group = std::get_if<GroupName>(&operand.what)) {
    const auto found = data.group.find(group->name);
    return Value(found != data.group.end() ? found->second : std::string("<no value>"));  // as Go says it
  }
  return evaluate(*std::get<std::shared_ptr<const Pipeline>>(operand.what), data);
}

// `last`: from the command before; null: there is none.
Result<Value> evaluate(const Command& command, const Value* last, const TemplateData& data) {
  if (command.function == nullptr) return evaluate(command.operands.front(), data);
  const bool is_lazy = command.function->call == nullptr;
  const bool stops_at = command.function->name == "or";
  Values values;
  for (size_t i = 0; i < command.operands.size() + (last != nullptr ? 1 : 0); ++i) {
    auto value = i < command.operands.size() ? evaluate(command.operands[i], data) : Result<Value>(*last);
    if (!value || (is_lazy && isTrue(*value) == stops_at)) return value;
    values.push_back(std::move(*value));
  }
  if (is_lazy) return values.back();
  return command.function->call(values);
}

Result<Value> evaluate(const Pipeline& pipeline, const TemplateData& data) {
  std::optional<Value> last;
  for (const Command& command : pipeline.commands) {
    auto value = evaluate(command, last ? &*last : nullptr, data);
    if (!value) return value;
    last = std::move(*value);
  }
  return *last;
}

bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The inside of one {{ }}.
class ActionParser {
 public:
  ActionParser(std::string_view text, std::vector<std::string>& groups) : text_(text), groups_(groups) {}

  bool atEnd() {
    skipBlanks();
    return pos_ == text_.size();
  }
  // The word that is next; empty: there is none.
  std::string_view peekWord() {
    skipBlanks();
    size_t end = pos_;
    while (end < text_.size() && (isLetter(text_[end]) || (end > pos_ && isDigit(text_[end])))) ++end;
    return text_.substr(pos_, end - pos_);
  }
  bool takeWord(std::string_view word) {
    if (peekWord() != word) return false;
    pos_ += word.size();
    return true;
  }
  // To the end, or to a closing parenthesis.
  Result<Pipeline> parsePipeline(size_t depth = 0) {
    if (depth > kMaxDepth) return fail("too many parentheses");
    Pipeline pipeline;
    do {
      auto command = parseCommand(!pipeline.commands.empty(), depth);
      if (!command) return tl::unexpected(command.error());
      pipeline.commands.push_back(std::move(*command));
    } while (takeChar('|'));
    return pipeline;
  }

 private:
  void skipBlanks() {
    while (pos_ < text_.size() && isBlank(text_[pos_])) ++pos_;
  }
  bool takeChar(char c) {
    skipBlanks();
    if (pos_ == text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  bool endsCommand() { return atEnd() || text_[pos_] == '|' || text_[pos_] == ')'; }

  Result<Command> parseCommand(bool is_fed, size_t depth) {
    Command command;
    if (endsCommand()) return fail("a value is missing");
    const std::string word(peekWord());
    if (!word.empty() && word != "true" && word != "false") {
      const auto* found = std::ranges::find(kFunctions, std::string_view(word), &Function::name);
      if (found == std::end(kFunctions)) return fail(fmt::format("'{}' is not supported", word));
      command.function = found;
      pos_ += word.size();
    }
    while (!endsCommand()) {
      auto operand = parseOperand(depth);
      if (!operand) return tl::unexpected(operand.error());
      command.operands.push_back(std::move(*operand));
    }
    if (command.function == nullptr) {
      if (command.operands.size() > 1 || is_fed) return fail("a value that is no function has arguments");
      return command;
    }
    if (auto checked = check(command, is_fed); !checked) return tl::unexpected(checked.error());
    return command;
  }

  Result<void> check(const Command& command, bool is_fed) {
    const size_t count = command.operands.size() + (is_fed ? 1 : 0);
    const Function& function = *command.function;
    if (count < function.least || count > function.most)
      return fail(fmt::format("'{}' has {} arguments", function.name, count));
    if (function.name == "index" && command.operands.size() == 2) noteGroup(command);
    if (function.name != "printf") return {};
    const auto* value = command.operands.empty() ? nullptr : std::get_if<Value>(&command.operands[0].what);
    const auto* format = value != nullptr ? std::get_if<std::string>(value) : nullptr;
    if (format == nullptr) return fail("the format of printf must be a text");
    const auto verbs = countVerbs(*format);
    if (!verbs) return fail("printf has %s, %d, %v, %x, %X, %o, %b and %%, with flags - and 0 and a width up to 255");
    if (*verbs != count - 1) return fail(fmt::format("printf has {} values for {} verbs", count - 1, *verbs));
    return {};
  }

  // index .Group "NAME", index .Match NUMBER
  void noteGroup(const Command& command) {
    const auto* field = std::get_if<TemplateField>(&command.operands[0].what);
    const auto* value = std::get_if<Value>(&command.operands[1].what);
    if (field == nullptr || value == nullptr) return;
    const auto* name = std::get_if<std::string>(value);
    const auto* number = std::get_if<int64_t>(value);
    if (*field == TemplateField::kGroup && name != nullptr) groups_.push_back(*name);
    if (*field == TemplateField::kMatch && number != nullptr) groups_.push_back(fmt::to_string(*number));
  }

  Result<Operand> parseOperand(size_t depth) {
    if (takeWord("true")) return Operand{Value(true)};
    if (takeWord("false")) return Operand{Value(false)};
    const char c = text_[pos_];
    if (c == '"' || c == '`') return parseText();
    if (c == '.') return parseField();
    if (isDigit(c) || c == '-' || c == '+') return parseInteger();
    if (takeChar('(')) {
      auto inner = parsePipeline(depth + 1);
      if (!inner) return tl::unexpected(inner.error());
      if (!takeChar(')')) return fail("a parenthesis is open");
      return Operand{std::make_shared<const Pipeline>(std::move(*inner))};
    }
    if (c == '$') return fail("variables ($) are not supported");
    if (const auto word = peekWord(); !word.empty()) return fail(fmt::format("'{}' stands for no value", word));
    return fail(fmt::format("'{}' is not supported", printable(text_.substr(pos_, 1))));
  }

  Result<Operand> parseInteger() {
    size_t end = pos_ + (text_[pos_] == '-' || text_[pos_] == '+' ? 1 : 0);
    while (end < text_.size() && (isLetter(text_[end]) || isDigit(text_[end]) || text_[end] == '.')) ++end;
    const std::string_view word = text_.substr(pos_, end - pos_);
    const auto number = parseNumber<int64_t>(word.starts_with('+') ? word.substr(1) : word);
    if (!number) return fail(fmt::format("'{}' is no whole number", printable(word)));
    pos_ = end;
    return Operand{Value(*number)};
  }

  Result<Operand> parseText() {
    const char quote = text_[pos_++];
    std::string value;
    for (; pos_ < text_.size(); ++pos_) {
      char c = text_[pos_];
      if (c == quote) {
        ++pos_;
        return Operand{Value(value)};
      }
      if (c == '\\' && quote == '"') {
        if (++pos_ == text_.size()) break;
        c = text_[pos_];
        if (c == 'n' || c == 't') {
          c = c == 'n' ? '\n' : '\t';
        } else if (c != '"' && c != '\\') {
          return fail(fmt::format("the escape \\{} is not supported", printable(text_.substr(pos_, 1))));
        }
      }
      value += c;
    }
    return fail("a text has no end");
  }

  Result<Operand> parseField() {
    std::vector<std::string> path;
    while (pos_ < text_.size() && text_[pos_] == '.') {
      size_t end = ++pos_;
      while (end < text_.size() && (isLetter(text_[end]) || isDigit(text_[end]))) ++end;
      path.emplace_back(text_.substr(pos_, end - pos_));
      pos_ = end;
    }
    const std::string name = "." + fmt::format("{}", fmt::join(path, "."));
    static constexpr std::pair<std::string_view, TemplateField> kFields[]{
        {".Zone", TemplateField::kZone},       {".Name", TemplateField::kName},
        {".Class", TemplateField::kClass},     {".Type", TemplateField::kType},
        {".Remote", TemplateField::kRemote},   {".Match", TemplateField::kMatch},
        {".Group", TemplateField::kGroup},     {".Question.Name", TemplateField::kQuestionName},
        {".Question.Qtype", TemplateField::kQuestionType}, {".Question.Qclass", TemplateField::kQuestionClass}};
    for (const auto& [text, field] : kFields) {
      if (text == name) return Operand{field};
    }
    if (path.size() == 2 && path[0] == "Group" && !path[1].empty()) {
      groups_.push_back(path[1]);
      return Operand{GroupName{path[1]}};
    }
    if (path[0] == "Meta") return fail(".Meta needs the directive metadata, which is not supported here");
    if (path[0] == "Message") return fail(".Message is not supported; there is .Question.Name, .Qtype and .Qclass");
    return fail(fmt::format("there is no field '{}'", printable(name)));
  }

  const std::string_view text_;
  size_t pos_ = 0;
  std::vector<std::string>& groups_;
};

using Nodes = std::vector<GoTemplate::Node>;

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view text) : text_(text) {}

  Result<Nodes> parse() {
    Nodes nodes;
    const auto end = parseNodes(nodes, 0);
    if (!end) return tl::unexpected(end.error());
    if (*end != End::kText) return fail(fmt::format("{{{{{}}}}} without an if", *end == End::kElse ? "else" : "end"));
    return nodes;
  }
  std::vector<std::string> groups;

 private:
  enum class End : uint8_t { kText, kElse, kEnd };

  // To the end of the text, or behind an else or an end; of an else the rest of its action is action_.
  Result<End> parseNodes(Nodes& nodes, size_t depth) {
    if (depth > kMaxDepth) return fail("too many conditions within each other");
    while (pos_ < text_.size()) {
      if (!text_.substr(pos_).starts_with("{{")) {
        addText(nodes);
        continue;
      }
      if (auto taken = takeAction(nodes); !taken) return tl::unexpected(taken.error());
      if (action_.starts_with("/*")) {
        if (!action_.ends_with("*/")) return fail("a comment has no end, or is not alone");
        continue;
      }
      ActionParser action(action_, groups);
      if (action.takeWord("end")) return action.atEnd() ? Result<End>(End::kEnd) : fail("'end' has arguments");
      if (action.takeWord("else")) return End::kElse;
      Result<void> parsed;
      if (action.takeWord("if"))
        parsed = parseIf(nodes, action, depth);
      else
        parsed = parseTail(action, nodes.emplace_back(GoTemplate::Node{.kind = GoTemplate::Node::Kind::kPrint}));
      if (!parsed) return tl::unexpected(parsed.error());
    }
    return End::kText;
  }

  void addText(Nodes& nodes) {
    const size_t end = std::min(text_.find("{{", pos_), text_.size());
    std::string_view text = text_.substr(pos_, end - pos_);
    pos_ = end;
    if (trims_) {
      while (!text.empty() && isBlank(text.front())) text.remove_prefix(1);
    }
    trims_ = false;
    nodes.push_back({.kind = GoTemplate::Node::Kind::kText, .text = std::string(text)});
  }

  // Sets action_ to the inside of the {{ }} at pos_, and goes behind it.
  Result<void> takeAction(Nodes& nodes) {
    const size_t begin = pos_ + 2;
    const size_t end = findEnd(begin);
    if (end == text_.npos) return fail("{{ without }}");
    action_ = text_.substr(begin, end - begin);
    pos_ = end + 2;
    if (action_.size() >= 2 && action_[0] == '-' && isBlank(action_[1])) {
      action_.remove_prefix(1);
      if (!nodes.empty() && nodes.back().kind == GoTemplate::Node::Kind::kText) {
        std::string& before = nodes.back().text;
        while (!before.empty() && isBlank(before.back())) before.pop_back();
      }
    }
    trims_ = action_.size() >= 2 && action_.back() == '-' && isBlank(action_[action_.size() - 2]);
    if (trims_) action_.remove_suffix(1);
    while (!action_.empty() && isBlank(action_.front())) action_.remove_prefix(1);
    while (!action_.empty() && isBlank(action_.back())) action_.remove_suffix(1);
    return {};
  }

  // Of the braces that close it, which do not stand in a text.
  size_t findEnd(size_t pos) const {
    char quote = 0;
    for (; pos + 1 < text_.size(); ++pos) {
      const char c = text_[pos];
      if (quote == 0 && c == '}' && text_[pos + 1] == '}') return pos;
      if (quote == 0 && (c == '"' || c == '`'))
        quote = c;
      else if (c == quote)
        quote = 0;
      else if (quote == '"' && c == '\\')
        ++pos;
    }
    return text_.npos;
  }

  static Result<void> parseTail(ActionParser& action, GoTemplate::Node& node) {
    auto pipeline = action.parsePipeline();
    if (!pipeline) return tl::unexpected(pipeline.error());
    if (!action.atEnd()) return fail("a parenthesis is closed that is not open");
    node.pipeline = std::move(*pipeline);
    return {};
  }

  // Behind `if`.
  Result<void> parseIf(Nodes& nodes, ActionParser& action, size_t depth) {
    GoTemplate::Node node{.kind = GoTemplate::Node::Kind::kIf};
    if (auto parsed = parseTail(action, node); !parsed) return parsed;
    auto end = parseNodes(node.then, depth + 1);
    if (end && *end == End::kElse) {
      ActionParser rest(action_, groups);
      rest.takeWord("else");
      if (rest.takeWord("if")) {
        if (auto parsed = parseIf(node.otherwise, rest, depth + 1); !parsed) return parsed;
        end = End::kEnd;  // one ends both
      } else {
        if (!rest.atEnd()) return fail("'else' has arguments");
        end = parseNodes(node.otherwise, depth + 1);
      }
    }
    if (!end) return tl::unexpected(end.error());
    if (*end != End::kEnd) return fail("{{if}} without {{end}}");
    nodes.push_back(std::move(node));
    return {};
  }

  const std::string_view text_;
  size_t pos_ = 0;
  std::string_view action_;
  bool trims_ = false;  // blanks at the beginning of the text that is next
};

Result<void> expandNodes(const Nodes& nodes, const TemplateData& data, std::string& text) {
  for (const GoTemplate::Node& node : nodes) {
    if (node.kind == GoTemplate::Node::Kind::kText) {
      text += node.text;
      continue;
    }
    const auto value = evaluate(node.pipeline, data);
    if (!value) return tl::unexpected(value.error());
    if (node.kind == GoTemplate::Node::Kind::kPrint) {
      text += textOf(*value);
    } else if (auto done = expandNodes(isTrue(*value) ? node.then : node.otherwise, data, text); !done) {
      return done;
    }
  }
  return {};
}

}  // namespace

GoTemplate::GoTemplate(std::vector<Node> nodes, std::vector<std::string> groups)
    : nodes_(std::move(nodes)), groups_(std::move(groups)) {}
GoTemplate::GoTemplate(GoTemplate&&) noexcept = default;
GoTemplate& GoTemplate::operator=(GoTemplate&&) noexcept = default;
GoTemplate::~GoTemplate() = default;

Result<GoTemplate> GoTemplate::parse(std::string_view text) {
  TemplateParser parser(text);
  auto nodes = parser.parse();
  if (!nodes) return tl::unexpected(nodes.error());
  return GoTemplate(std::move(*nodes), std::move(parser.groups));
}

Result<std::string> GoTemplate::expand(const TemplateData& data) const {
  std::string text;
  if (auto done = expandNodes(nodes_, data, text); !done) return tl::unexpected(done.error());
  return text;
}

bool GoTemplate::isConstant() const {
  return std::ranges::all_of(nodes_, [](const Node& node) { return node.kind == Node::Kind::kText; });
}

}  // namespace idetcd::directive
