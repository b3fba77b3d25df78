#include "base/text.h"
#include "directive/template/go_template_internal.h"

namespace idetcd::directive::template_parts {

namespace {

constexpr size_t kMaxDepth = 16;  // of parentheses, and of `if`

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
      command.function = findFunction(word);
      if (command.function == nullptr) return fail(fmt::format("'{}' is not supported", word));
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
        {".Zone", TemplateField::kZone},
        {".Name", TemplateField::kName},
        {".Class", TemplateField::kClass},
        {".Type", TemplateField::kType},
        {".Remote", TemplateField::kRemote},
        {".Match", TemplateField::kMatch},
        {".Group", TemplateField::kGroup},
        {".Question.Name", TemplateField::kQuestionName},
        {".Question.Qtype", TemplateField::kQuestionType},
        {".Question.Qclass", TemplateField::kQuestionClass}};
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
  TemplateParser(std::string_view text, std::vector<std::string>& groups) : text_(text), groups_(groups) {}

  Result<Nodes> parse() {
    Nodes nodes;
    const auto end = parseNodes(nodes, 0);
    if (!end) return tl::unexpected(end.error());
    if (*end != End::kText) return fail(fmt::format("{{{{{}}}}} without an if", *end == End::kElse ? "else" : "end"));
    return nodes;
  }

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
      ActionParser action(action_, groups_);
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
      ActionParser rest(action_, groups_);
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
  std::vector<std::string>& groups_;
  size_t pos_ = 0;
  std::string_view action_;
  bool trims_ = false;  // blanks at the beginning of the text that is next
};

}  // namespace

Result<std::vector<GoTemplate::Node>> parseTemplate(std::string_view text, std::vector<std::string>& groups) {
  TemplateParser parser(text, groups);
  return parser.parse();
}

}  // namespace idetcd::directive::template_parts
