#include "slots/name_pattern.h"

#include "base/text.h"

// Why every pattern can be inverted. A number is never shorter in the name of a greater ID, so neither is the name; and
// where two names are equally long, so is each of their numbers, and all parts stand at the same places. So the length
// of a name says where its first number begins and ends, whatever digits the text around it has, and that number says
// the ID. The other numbers have to agree: the name of this ID is compared with the whole.
//
// IDs with names of one length are a range, here called a shape. It ends where a number gets one digit more: there are
// no more shapes than powers of the bases below the limit. Names of one shape differ in nothing but digits, which every
// host name may have, so one of them shows whether all are host names.

namespace idetcd::slots {

namespace {

constexpr std::string_view kBothForms = R"({{.ID}} or {{printf "%03d" .ID}})";
constexpr std::string_view kOutside = "write fixed text outside of the braces";

// Between the words of an action.
bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool isWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || isDigit(c) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

constexpr std::array<std::string_view, 13> kKeywords{"block", "break", "continue", "define",   "else", "end", "false",
                                                     "if",    "nil",   "range",    "template", "true", "with"};
constexpr std::array<std::string_view, 18> kOtherFunctions{"and",   "call", "eq",    "ge",      "gt",    "html",
                                                           "index", "js",   "le",    "len",     "lt",    "ne",
                                                           "not",   "or",   "print", "println", "slice", "urlquery"};

template <typename List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// The format of printf, which is one directive: %[flags][width][.precision]verb.
class FormatParser {
 public:
  explicit FormatParser(std::string_view format) : format_(format) {}

  Result<NumberFormat> run() {
    const size_t percent = format_.find('%');
    if (percent == std::string_view::npos) return refuse("has no verb", "%d");
    pos_ = percent + 1;
    flags_ = span("+-# 0");
    width_ = span("0123456789");
    if (peek() == '.') {
      ++pos_;
      precision_ = span("0123456789");
    }
    if (auto verb = readVerb(); !verb) return tl::unexpected(verb.error());
    if (percent > 0 || pos_ < format_.size()) {
      return fail(fmt::format("the format {} is more than a number: {}", quoted(), kOutside));
    }
    if (auto padding = checkPadding(); !padding) return tl::unexpected(padding.error());
    const std::optional<int> width = number(width_);
    if (!width) {
      return fail(fmt::format("the width of {} is more than {}, the length of the longest label", quoted(),
                              NumberFormat::kMaxWidth));
    }
    return NumberFormat{.base = verb_ == 'd' ? 10 : verb_ == 'o' ? 8 : 16, .width = std::max(*width, 1)};
  }

 private:
  Result<void> readVerb() {
    if (peek() == '*') return refuse("takes a width from an argument ('*')", "%03d");
    if (peek() == '[') return refuse("has an argument index ('[')", "%d");
    if (pos_ == format_.size()) return refuse("ends without a verb", "%d");
    verb_ = format_[pos_++];
    if (std::string_view("dxXo").find(verb_) != std::string_view::npos) return {};
    if (verb_ == '%') return refuse("has a '%', which is in no host name", "%d");
    if (verb_ == 's') return refuse("has the verb %s, which wants a string, and .ID is a number", "%d");
    if (verb_ == 'v') return refuse("has the verb %v, which is not supported", "%d");
    return refuse(fmt::format("has the verb %{}, which is not supported", printable({&verb_, 1})), "%d, %x, %X or %o");
  }

  // Zeros are all that a number is filled up with.
  Result<void> checkPadding() const {
    if (hasFlag('+')) return refuse("has the flag '+', which writes a sign", plain(width_));
    if (hasFlag('#')) {
      return refuse("has the flag '#', which writes 0x or 0", fmt::format("{} and {}", plain(width_), kOutside));
    }
    if (hasFlag('-')) return refuse("has the flag '-', which pads with blanks on the right", plain(width_));
    if (hasFlag(' ')) return refuse("has the flag ' ', which writes a blank", plain(width_));
    if (precision_) return refuse("has a precision ('.')", plain(*precision_));
    if (!width_.empty() && !hasFlag('0')) {
      return refuse("pads with blanks, which are in no host name", plain(width_));
    }
    return {};
  }

  bool hasFlag(char flag) const { return flags_.find(flag) != std::string_view::npos; }

  // None: no label is so long. Without digits 0.
  static std::optional<int> number(std::string_view digits) {
    int value = 0;
    for (const char c : digits) {
      value = value * 10 + (c - '0');
      if (value > NumberFormat::kMaxWidth) return std::nullopt;
    }
    return value;
  }

  // The meaning, in supported syntax.
  std::string plain(std::string_view width) const {
    const int digits = number(width).value_or(0);
    return digits > 0 ? fmt::format("%0{}{}", digits, verb_) : fmt::format("%{}", verb_);
  }

  std::string_view span(std::string_view characters) {
    const size_t end = std::min(format_.find_first_not_of(characters, pos_), format_.size());
    const std::string_view found = format_.substr(pos_, end - pos_);
    pos_ = end;
    return found;
  }

  tl::unexpected<Error> refuse(std::string_view what, std::string_view instead) const {
    return fail(fmt::format("the format {} {}: use {}", quoted(), what, instead));
  }

  std::string quoted() const { return fmt::format("\"{}\"", printable(format_)); }
  char peek() const { return pos_ < format_.size() ? format_[pos_] : '\0'; }

  const std::string_view format_;
  size_t pos_ = 0;
  std::string_view flags_;
  std::string_view width_;
  std::optional<std::string_view> precision_;
  char verb_ = 'd';
};

// Text, number, text, …, number, text: there is one text more than numbers, and each may be empty.
struct PatternParts {
  std::vector<std::string> texts;
  std::vector<NumberFormat> numbers;
};

// Reads the part of Go's text/template that makes a name out of a number: text, {{.ID}} and {{printf "FORMAT" .ID}},
// with blanks inside the braces as Go allows them. FORMAT is % or %0N with one of the verbs d, x, X and o. What else
// the language has is refused by its name, with what to write instead.
class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  Result<PatternParts> run() {
    PatternParts parts;
    while (true) {
      const size_t open = text_.find("{{", pos_);
      parts.texts.emplace_back(text_.substr(pos_, open == std::string_view::npos ? open : open - pos_));
      if (open == std::string_view::npos) return parts;
      action_start_ = open;
      pos_ = open + 2;
      const Result<NumberFormat> number = action();
      if (!number) return tl::unexpected(number.error());
      parts.numbers.push_back(*number);
    }
  }

 private:
  // From behind the opening braces to behind the closing ones.
  Result<NumberFormat> action() {
    if (peek() == '-' && isBlank(peek(1))) return refuse("the trim marker '{{- '", kBothForms);
    if (text_.substr(pos_).starts_with("/*")) return comment();
    skipBlanks();
    NumberFormat format;
    if (isWordCharacter(peek()) && peekWord() == "printf") {
      pos_ += peekWord().size();
      const Result<NumberFormat> read = formatArgument();
      if (!read) return read;
      format = *read;
      if (!skipBlanks()) return refuseHere();
    }
    if (peekField() != ".ID") return refuseHere();
    pos_ += peekField().size();
    skipBlanks();
    if (!atClose()) return refuseHere();
    pos_ += 2;
    return format;
  }

  // From behind `printf`.
  Result<NumberFormat> formatArgument() {
    const bool separated = skipBlanks();
    const char mark = peek();
    const bool is_quote = mark == '"' || mark == '`';
    if (is_quote && !separated) {
      return fail(fmt::format("a blank is missing behind printf: {}, use {}", actionText(), kBothForms));
    }
    if (atClose() || mark == '.' || isDigit(mark)) {
      return fail(fmt::format("printf needs a format: {}, use {}", actionText(), kBothForms));
    }
    if (!is_quote) return refuseHere();
    const size_t end = text_.find(mark, pos_ + 1);
    const std::string_view format =
        end == std::string_view::npos ? std::string_view() : text_.substr(pos_ + 1, end - pos_ - 1);
    if (end == std::string_view::npos || (mark == '"' && format.find('\n') != std::string_view::npos)) {
      return fail(fmt::format("a {} quote is not closed: {}, use {}", mark, actionText(), kBothForms));
    }
    if (mark == '"' && format.find('\\') != std::string_view::npos) {
      return fail(fmt::format("an escape ('\\') is not supported: {}, use {}", actionText(), kBothForms));
    }
    pos_ = end + 1;
    return FormatParser(format).run();
  }

  tl::unexpected<Error> comment() const {
    return fail(fmt::format("a comment is not supported: {}, leave it out", actionText()));
  }

  // Names what stands here, where nothing of the kind is supported.
  tl::unexpected<Error> refuseHere() const {
    const char c = peek();
    if (atEnd()) return fail(fmt::format("{} is not closed, use {}", actionText(), kBothForms));
    if (atClose()) {
      return fail(fmt::format("a value is missing in {}, use {}", actionText(), kBothForms));
    }
    if (text_.substr(pos_).starts_with("-}}") && isBlank(text_[pos_ - 1])) {
      return refuse("the trim marker ' -}}'", kBothForms);
    }
    if (c == '|') return refuse("a pipeline ('|')", kBothForms);
    if (c == '(' || c == ')') return refuse("a parenthesis", kBothForms);
    if (c == '$') return refuse("a variable ('$')", kBothForms);
    if (c == '"' || c == '`' || c == '\'' || isDigit(c) || ((c == '+' || c == '-') && isDigit(peek(1)))) {
      return fail(fmt::format("a constant is not supported: {}, {}", actionText(), kOutside));
    }
    if (c == '.' && peekField() != ".ID") return refuse(peekField(), ".ID");
    if (isWordCharacter(c)) return refuseWord(peekWord());
    return fail(fmt::format("unexpected '{}' in {}, use {}", printable({&c, 1}), actionText(), kBothForms));
  }

  tl::unexpected<Error> refuseWord(std::string_view word) const {
    if (contains(kKeywords, word)) return refuse(fmt::format("'{}'", word), kBothForms);
    if (contains(kOtherFunctions, word)) return refuse(fmt::format("the function '{}'", word), kBothForms);
    return fail(fmt::format("there is no function '{}': {}, use {}", printable(word), actionText(), kBothForms));
  }

  tl::unexpected<Error> refuse(std::string_view what, std::string_view instead) const {
    return fail(fmt::format("{} is not supported: {}, use {}", printable(what), actionText(), instead));
  }

  // True if there were any.
  bool skipBlanks() {
    const size_t start = pos_;
    while (isBlank(peek())) ++pos_;
    return pos_ > start;
  }

  std::string_view peekWord() const {
    size_t end = pos_;
    while (end < text_.size() && isWordCharacter(text_[end])) ++end;
    return text_.substr(pos_, end - pos_);
  }
  // With the dots: ".ID", ".ID.Foo".
  std::string_view peekField() const {
    if (peek() != '.') return {};
    size_t end = pos_;
    while (end < text_.size() && (isWordCharacter(text_[end]) || text_[end] == '.')) ++end;
    return text_.substr(pos_, end - pos_);
  }

  bool atEnd() const { return pos_ >= text_.size(); }
  bool atClose() const { return text_.substr(pos_).starts_with("}}"); }
  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }

  // The action that is being read.
  std::string actionText() const {
    const size_t end = text_.find("}}", action_start_);
    return printable(text_.substr(action_start_, end == std::string_view::npos ? end : end + 2 - action_start_));
  }

  const std::string_view text_;
  size_t pos_ = 0;
  size_t action_start_ = 0;
};

constexpr size_t kMaxPatternLength = 1024;

bool isHostCharacter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

// REQUIRES: `name` ends with a dot.
Result<void> checkName(std::string_view name, int64_t id) {
  assert(name.ends_with('.'));
  const auto wrong = [&](std::string_view what) {
    return fail(fmt::format("the name of ID {}, \"{}\", {}", id, printable(name), what));
  };
  size_t label_start = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '.') {
      if (isHostCharacter(name[i])) continue;
      return wrong(fmt::format("has '{}', but a host name has only letters, digits, '-', '_' and '.'",
                               printable(name.substr(i, 1))));
    }
    const std::string_view label = name.substr(label_start, i - label_start);
    if (label.empty()) return wrong("has an empty label");
    if (label.size() > dns::kMaxLabelLength) {
      return wrong(fmt::format("has a label of {} bytes, more than {}", label.size(), dns::kMaxLabelLength));
    }
    if (label.starts_with('-')) return wrong("has a label that begins with '-'");
    if (label.ends_with('-')) return wrong("has a label that ends with '-'");
    label_start = i + 1;
  }
  // On the wire each dot is the length of the label behind it, and the length of the first label comes on top.
  if (name.size() + 1 > dns::kMaxNameLength) {
    return wrong(fmt::format("has {} bytes, more than {}", name.size() + 1, dns::kMaxNameLength));
  }
  return {};
}

// The IDs, from 1 on, at which a number gets longer; in order.
std::vector<int64_t> firstIds(const std::vector<NumberFormat>& numbers, int64_t limit) {
  std::vector<int64_t> ids{1};
  for (const NumberFormat& number : numbers) {
    int64_t power = 1;
    for (int digits = 1; power <= limit / number.base; ++digits) {
      power *= number.base;
      if (digits >= number.width) ids.push_back(power);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

// The longest number, 2^63 - 1 in base 8, has 21 digits: it fits as every width does.
NumberFormat::Digits NumberFormat::write(int64_t id) const {
  Digits digits;
  digits.size_ = length(id);
  auto value = static_cast<uint64_t>(id);
  for (size_t i = digits.size_; i-- > 0; value /= static_cast<unsigned>(base)) {
    digits.text_[i] = "0123456789abcdef"[value % static_cast<unsigned>(base)];
  }
  return digits;
}

size_t NumberFormat::length(int64_t id) const {
  assert(id > 0);
  size_t length = 0;
  for (; id > 0; id /= base) ++length;
  return std::max(length, static_cast<size_t>(width));
}

std::optional<int64_t> NumberFormat::read(std::string_view digits) const {
  const auto id = parseNumber<int64_t>(digits, base);
  return id && *id > 0 ? id : std::nullopt;
}

struct NamePattern::Parts {
  // The IDs from here to the next shape, or to the limit.
  struct Shape {
    size_t name_length = 0;
    int64_t first_id = 0;
  };

  std::string text;
  PatternParts parts;
  int64_t limit = 0;
  std::vector<Shape> shapes;  // by length, and so by ID
  dns::Name zone;

  // Calls take(std::string_view) for each part of the name.
  template <typename Take>
  void spell(int64_t id, Take take) const {
    for (size_t i = 0; i < parts.numbers.size(); ++i) {
      take(std::string_view(parts.texts[i]));
      take(parts.numbers[i].write(id).view());
    }
    take(std::string_view(parts.texts.back()));
  }

  std::string render(int64_t id) const {
    std::string name;
    spell(id, [&name](std::string_view part) { name += part; });
    return name;
  }

  bool isName(std::string_view name, int64_t id) const {
    bool same = true;
    spell(id, [&](std::string_view part) {
      same = same && name.starts_with(part);
      if (same) name.remove_prefix(part.size());
    });
    return same && name.empty();
  }
};

Result<NamePattern> NamePattern::parse(std::string_view text, int64_t limit) {
  if (limit < 1) return fail(fmt::format("the limit must be at least 1 and is {}", limit));
  if (text.empty()) return fail("the pattern is empty");
  if (text.size() > kMaxPatternLength) {
    return fail(fmt::format("the pattern is longer than {} bytes", kMaxPatternLength));
  }
  Result<PatternParts> read = PatternParser(text).run();
  if (!read) return tl::unexpected(read.error());
  if (read->numbers.empty()) return fail("the pattern does not use {{.ID}}, so all nodes would have the same name");
  for (std::string& part : read->texts) part = lowerCase(part);
  std::string& end = read->texts.back();
  if (!end.ends_with('.')) end.push_back('.');

  auto parts = std::make_shared<Parts>();
  parts->text = text;
  parts->parts = *std::move(read);
  parts->limit = limit;
  for (const int64_t id : firstIds(parts->parts.numbers, limit)) {
    const std::string name = parts->render(id);
    if (auto checked = checkName(name, id); !checked) return tl::unexpected(checked.error());
    parts->shapes.push_back({name.size(), id});
  }

  // The label that the last number stands in does not belong to the zone.
  const std::string_view behind = parts->parts.texts.back();
  const std::string_view zone_text = behind.substr(behind.find('.') + 1);
  const Result<dns::Name> zone = dns::Name::parse(zone_text.empty() ? "." : zone_text);
  if (!zone) return tl::unexpected(zone.error());
  parts->zone = *zone;

  NamePattern pattern;
  pattern.parts_ = std::move(parts);
  return pattern;
}

std::string NamePattern::render(int64_t id) const {
  assert(id >= 1 && id <= limit());
  return parts_->render(id);
}

std::optional<int64_t> NamePattern::recognise(std::string_view name) const {
  const auto& shapes = parts_->shapes;
  const auto shape = std::lower_bound(shapes.begin(), shapes.end(), name.size(),
                                      [](const Parts::Shape& each, size_t size) { return each.name_length < size; });
  if (shape == shapes.end() || shape->name_length != name.size()) return std::nullopt;
  const NumberFormat& number = parts_->parts.numbers.front();
  const size_t begin = parts_->parts.texts.front().size();
  const std::optional<int64_t> id = number.read(name.substr(begin, number.length(shape->first_id)));
  if (!id || *id > parts_->limit || !parts_->isName(name, *id)) return std::nullopt;
  return id;
}

int64_t NamePattern::limit() const { return parts_->limit; }

const dns::Name& NamePattern::zone() const { return parts_->zone; }

std::string_view NamePattern::literalPrefix() const { return parts_->parts.texts.front(); }

const std::string& NamePattern::text() const { return parts_->text; }

}  // namespace idetcd::slots
