#include "cluster/pattern_template.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace idetcd::cluster {
namespace {

constexpr size_t kMaxDepth = 16;  // of parentheses

// Go's: what trim markers remove, and what separates the words of an action.
bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || isDigit(c) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::string_view trimLeft(std::string_view text) {
  while (!text.empty() && isBlank(text.front())) text.remove_prefix(1);
  return text;
}
std::string_view trimRight(std::string_view text) {
  while (!text.empty() && isBlank(text.back())) text.remove_suffix(1);
  return text;
}

constexpr std::array<std::string_view, 13> kKeywords{"block", "break", "continue", "define",   "else", "end", "false",
                                                     "if",    "nil",   "range",    "template", "true", "with"};
constexpr std::array<std::string_view, 16> kOtherFunctions{
    "and", "call", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or", "slice", "urlquery"};

template <typename List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

void appendUtf8(std::string* out, uint32_t rune) {
  const std::array<GoValue, 1> value{static_cast<int64_t>(rune)};
  *out += goSprintf("%c", value).value_or("");
}

}  // namespace

bool PatternTemplate::Expression::usesId() const {
  return kind == Kind::kId || std::any_of(args.begin(), args.end(), [](const Expression& arg) { return arg.usesId(); });
}

// A recursive-descent parser over the text of one pattern.
class TemplateParser {
 public:
  explicit TemplateParser(std::string_view text) : text_(text) {}

  Result<PatternTemplate> run() {
    while (true) {
      const size_t open = text_.find("{{", pos_);
      std::string_view literal = text_.substr(pos_, open == std::string_view::npos ? open : open - pos_);
      if (trim_next_) literal = trimLeft(literal);
      if (open == std::string_view::npos) {
        addText(literal);
        return std::move(template_);
      }
      action_start_ = open;
      pos_ = open + 2;
      const bool trims = peek() == '-' && isBlank(peek(1));
      if (trims) pos_ += 2;
      addText(trims ? trimRight(literal) : literal);
      if (auto parsed = action(); !parsed) return tl::unexpected(parsed.error());
    }
  }

 private:
  using Expression = PatternTemplate::Expression;
  using Function = PatternTemplate::Function;
  using Kind = Expression::Kind;

  void addText(std::string_view text) {
    if (text.empty()) return;
    std::vector<Expression>& pieces = template_.pieces_;
    if (pieces.empty() || pieces.back().kind != Kind::kConstant) pieces.push_back(constant(std::string()));
    std::get<std::string>(pieces.back().constant) += text;
  }

  // From behind the opening braces to behind the closing ones.
  Result<void> action() {
    // Behind a trim marker and its blank, more blanks may come in front of a comment.
    if (pos_ > action_start_ + 2) skipBlanks();
    if (text_.substr(pos_).starts_with("/*")) return comment();
    Result<Expression> value = pipeline(0);
    if (!value) return tl::unexpected(value.error());
    if (!takeClose()) return unexpected();
    if (value->kind == Kind::kConstant) {
      const std::array<GoValue, 1> output{std::move(value->constant)};
      addText(goSprint(output));
    } else {
      template_.pieces_.push_back(std::move(*value));
    }
    return {};
  }

  Result<void> comment() {
    const size_t end = text_.find("*/", pos_ + 2);
    if (end == std::string_view::npos) return fail("pattern: a comment is not closed");
    pos_ = end + 2;
    const bool blank = isBlank(peek());
    if (!takeClose() || (blank && !trim_next_)) return fail("pattern: a comment must end at the closing braces: */}}");
    return {};
  }

  // Commands between bars, each the last argument of the next, up to a parenthesis or the closing braces.
  Result<Expression> pipeline(size_t depth) {
    if (depth > kMaxDepth) return fail(fmt::format("pattern: parentheses deeper than {}", kMaxDepth));
    std::optional<Expression> piped;
    while (true) {
      Result<Expression> value = command(depth, std::move(piped));
      if (!value) return value;
      if (peek() != '|') return value;
      ++pos_;
      piped = std::move(*value);
    }
  }

  // A function and its arguments, or one operand.
  Result<Expression> command(size_t depth, std::optional<Expression> piped) {
    skipBlanks();
    if (atEnd() || atClose() || peek() == '|' || peek() == ')') {
      if (atEnd()) return unexpected();
      return fail(fmt::format("pattern: a value is missing in {}", actionText()));
    }
    std::optional<Function> function;
    if (isWordCharacter(peek()) && !isDigit(peek())) {
      const Result<Function> named = functionName();
      if (!named) return tl::unexpected(named.error());
      function = *named;
    }
    std::vector<Expression> operands;
    while (true) {
      const bool separated = skipBlanks();
      if (atEnd()) return unexpected();
      if (atClose() || peek() == '|' || peek() == ')') break;
      if (!separated && (function || !operands.empty())) return unexpected();
      Result<Expression> value = operand(depth);
      if (!value) return value;
      operands.push_back(std::move(*value));
    }
    const bool has_args = operands.size() > 1 || piped.has_value();
    if (!function && has_args) return fail(fmt::format("pattern: only a function takes arguments: {}", actionText()));
    if (!function) return std::move(operands.front());
    if (piped) operands.push_back(std::move(*piped));
    return call(*function, std::move(operands));
  }

  Result<Expression> operand(size_t depth) {
    const char first = peek();
    if (first == '.') return field();
    if (first == '"' || first == '`') return stringConstant();
    if (first == '\'') return characterConstant();
    if (isDigit(first) || first == '+' || first == '-') return numberConstant();
    if (first == '$') return fail(fmt::format("pattern: variables are not supported: {}", actionText()));
    if (first == '(') return parenthesis(depth);
    if (!isWordCharacter(first)) return unexpected();
    const Result<Function> function = functionName();
    if (!function) return tl::unexpected(function.error());
    return call(*function, {});
  }

  Result<Expression> field() {
    const size_t start = pos_;
    while (isWordCharacter(peek()) || peek() == '.') ++pos_;
    const std::string_view name = text_.substr(start, pos_ - start);
    if (name != ".ID") return fail(fmt::format("pattern: {} is not supported, only .ID is: {}", name, actionText()));
    Expression id;
    id.kind = Kind::kId;
    return id;
  }

  Result<Expression> parenthesis(size_t depth) {
    ++pos_;
    Result<Expression> value = pipeline(depth + 1);
    if (!value) return value;
    if (peek() != ')') return unexpected();
    ++pos_;
    if (peek() == '.') return fail(fmt::format("pattern: a field of a parenthesis is not supported: {}", actionText()));
    return value;
  }

  Result<Expression> stringConstant() {
    if (peek() == '`') {
      const size_t end = text_.find('`', pos_ + 1);
      if (end == std::string_view::npos) return fail("pattern: a ` quote is not closed");
      std::string raw(text_.substr(pos_ + 1, end - pos_ - 1));
      std::erase(raw, '\r');  // as Go does
      pos_ = end + 1;
      return constant(std::move(raw));
    }
    Result<std::vector<uint32_t>> units = quoted('"');
    if (!units) return tl::unexpected(units.error());
    std::string value;
    for (const uint32_t unit : *units) {
      if ((unit & kOctet) != 0) {
        value.push_back(static_cast<char>(unit & 0xff));
      } else {
        appendUtf8(&value, unit);
      }
    }
    return constant(std::move(value));
  }

  // 'a' is the number of the character, as in Go.
  Result<Expression> characterConstant() {
    Result<std::vector<uint32_t>> units = quoted('\'');
    if (!units) return tl::unexpected(units.error());
    if (units->size() == 1) return constant(static_cast<int64_t>(units->front() & ~kOctet));
    return fail(fmt::format("pattern: a character constant has one ASCII character: {}", actionText()));
  }

  Result<Expression> numberConstant() {
    const size_t start = pos_;
    if (peek() == '+' || peek() == '-') ++pos_;
    while (isWordCharacter(peek()) || peek() == '.') ++pos_;
    const std::string_view text = text_.substr(start, pos_ - start);
    const std::optional<int64_t> number = parseInteger(text);
    if (number) return constant(*number);
    return fail(fmt::format("pattern: '{}' is not a whole number, and others are not supported", text));
  }

  // Go's integer literals: 12, -3, 0x1f, 0o17, 017, 0b11, 1_000.
  static std::optional<int64_t> parseInteger(std::string_view text) {
    const bool negative = text.starts_with('-');
    if (negative || text.starts_with('+')) text.remove_prefix(1);
    int base = 10;
    if (text.size() > 1 && text[0] == '0') {
      const char marker = static_cast<char>(text[1] | 0x20);
      base = marker == 'x' ? 16 : marker == 'b' ? 2 : 8;
      text.remove_prefix(marker == 'x' || marker == 'b' || marker == 'o' ? 2 : 1);
      if (text.starts_with('_')) text.remove_prefix(1);
    }
    if (text.empty() || text.ends_with('_') || text.find("__") != std::string_view::npos || text.starts_with('_')) {
      return std::nullopt;
    }
    std::string digits(text);
    std::erase(digits, '_');
    if (negative) digits.insert(0, 1, '-');
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return value;
  }

  // The characters between two marks, escapes resolved. An octet that an escape or the text gives as such has kOctet
  // set.
  Result<std::vector<uint32_t>> quoted(char mark) {
    const auto unclosed = [&] { return fail(fmt::format("pattern: a {} quote is not closed", mark)); };
    std::vector<uint32_t> units;
    for (++pos_; peek() != mark;) {
      if (atEnd() || peek() == '\n') return unclosed();
      if (peek() != '\\') {
        units.push_back(kOctet | static_cast<unsigned char>(text_[pos_++]));
        continue;
      }
      ++pos_;
      if (atEnd()) return unclosed();
      const Result<uint32_t> unit = escape(mark);
      if (!unit) return tl::unexpected(unit.error());
      units.push_back(*unit);
    }
    ++pos_;
    return units;
  }

  // From behind the backslash.
  Result<uint32_t> escape(char mark) {
    constexpr std::string_view kLetters = "abfnrtv\\";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\";
    const char c = text_[pos_];
    if (c == mark) return kOctet | static_cast<unsigned char>(text_[pos_++]);
    if (const size_t i = kLetters.find(c); i != std::string_view::npos) {
      ++pos_;
      return kOctet | static_cast<unsigned char>(kMeanings[i]);
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 3;
    const bool octal = c >= '0' && c <= '7';
    if (!octal && digits == 3) return fail(fmt::format("pattern: unknown escape \\{} in {}", c, actionText()));
    if (!octal) ++pos_;
    const std::string_view figures = text_.substr(pos_, digits);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(figures.data(), figures.data() + figures.size(), value, octal ? 8 : 16);
    const bool whole = error == std::errc() && figures.size() == digits && end == figures.data() + digits;
    const bool is_octet = digits <= 3;
    if (!whole || value > (is_octet ? 0xff : 0x10ffff)) {
      return fail(fmt::format("pattern: bad escape in {}", actionText()));
    }
    pos_ += digits;
    return is_octet ? kOctet | value : value;
  }

  Result<Function> functionName() {
    const std::string_view name = word();
    if (name == "print") return Function::kPrint;
    if (name == "printf") return Function::kPrintf;
    if (name == "println") return Function::kPrintln;
    if (contains(kKeywords, name)) return fail(fmt::format("pattern: '{}' is not supported: {}", name, actionText()));
    const std::string_view what = contains(kOtherFunctions, name) ? "is not supported" : "does not exist";
    return fail(
        fmt::format("pattern: the function '{}' {}, only print, printf and println are: {}", name, what, actionText()));
  }

  // A call that does not depend on .ID is replaced by its result.
  Result<Expression> call(Function function, std::vector<Expression> args) {
    if (function == Function::kPrintf) {
      if (args.empty()) return fail(fmt::format("pattern: printf needs a format: {}", actionText()));
      const Expression& format = args.front();
      if (format.kind != Kind::kConstant) {
        return fail(fmt::format("pattern: the format of printf must not depend on .ID: {}", actionText()));
      }
      if (!std::holds_alternative<std::string>(format.constant)) {
        return fail(fmt::format("pattern: the format of printf must be a string: {}", actionText()));
      }
    }
    Expression made;
    made.kind = Kind::kCall;
    made.function = function;
    made.args = std::move(args);
    if (made.usesId()) return made;
    Result<GoValue> value = PatternTemplate::evaluate(made, 0);
    if (!value) return tl::unexpected(value.error());
    return constant(std::move(*value));
  }

  static Expression constant(GoValue value) {
    Expression made;
    made.constant = std::move(value);
    return made;
  }

  std::string_view word() {
    const size_t start = pos_;
    while (isWordCharacter(peek())) ++pos_;
    return text_.substr(start, pos_ - start);
  }

  // True if there were any. Stops in front of a closing trim marker, whose blank belongs to it.
  bool skipBlanks() {
    const size_t start = pos_;
    while (isBlank(peek())) ++pos_;
    return pos_ > start;
  }

  bool atEnd() const { return pos_ >= text_.size(); }
  // At "}}", or at "-}}" behind a blank.
  bool atClose() const {
    const std::string_view rest = text_.substr(pos_);
    return rest.starts_with("}}") || (rest.starts_with("-}}") && isBlank(text_[pos_ - 1]));
  }
  bool takeClose() {
    skipBlanks();
    if (atEnd() || !atClose()) return false;
    trim_next_ = peek() == '-';
    pos_ += trim_next_ ? 3 : 2;
    return true;
  }

  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }

  // The action that is being read, for messages.
  std::string_view actionText() const {
    const size_t end = text_.find("}}", action_start_);
    return text_.substr(action_start_, end == std::string_view::npos ? end : end + 2 - action_start_);
  }
  tl::unexpected<Error> unexpected() const {
    if (atEnd()) return fail(fmt::format("pattern: {} is not closed", actionText()));
    return fail(fmt::format("pattern: unexpected '{}' in {}", text_[pos_], actionText()));
  }

  static constexpr uint32_t kOctet = uint32_t{1} << 31;

  const std::string_view text_;
  size_t pos_ = 0;
  size_t action_start_ = 0;
  bool trim_next_ = false;
  PatternTemplate template_;
};

Result<PatternTemplate> PatternTemplate::parse(std::string_view text) { return TemplateParser(text).run(); }

Result<std::string> PatternTemplate::render(int64_t id) const {
  std::string text;
  for (const Expression& piece : pieces_) {
    if (piece.kind == Expression::Kind::kConstant) {
      text += std::get<std::string>(piece.constant);
      continue;
    }
    Result<GoValue> value = evaluate(piece, id);
    if (!value) return tl::unexpected(value.error());
    text += goSprint({&*value, 1});
  }
  return text;
}

Result<GoValue> PatternTemplate::evaluate(const Expression& expression, int64_t id) {
  if (expression.kind == Expression::Kind::kConstant) return expression.constant;
  if (expression.kind == Expression::Kind::kId) return GoValue(id);
  std::vector<GoValue> args;
  args.reserve(expression.args.size());
  for (const Expression& arg : expression.args) {
    Result<GoValue> value = evaluate(arg, id);
    if (!value) return value;
    args.push_back(std::move(*value));
  }
  return call(expression.function, args);
}

Result<GoValue> PatternTemplate::call(Function function, const std::vector<GoValue>& args) {
  if (function == Function::kPrint) return GoValue(goSprint(args));
  if (function == Function::kPrintln) return GoValue(goSprintln(args));
  Result<std::string> text = goSprintf(std::get<std::string>(args.front()), std::span(args).subspan(1));
  if (!text) return tl::unexpected(text.error());
  return GoValue(std::move(*text));
}

bool PatternTemplate::usesId() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const Expression& piece) { return piece.usesId(); });
}

std::string_view PatternTemplate::prefix() const {
  const Expression& first = pieces_.front();
  return first.kind == Expression::Kind::kConstant ? std::get<std::string>(first.constant) : std::string_view();
}

std::string_view PatternTemplate::suffix() const {
  const Expression& last = pieces_.back();
  return last.kind == Expression::Kind::kConstant ? std::get<std::string>(last.constant) : std::string_view();
}

}  // namespace idetcd::cluster
