#include "base/text.h"
#include "directive/template/go_template_internal.h"

namespace idetcd::directive::template_parts {

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

namespace {

constexpr size_t kMaxWidth = 255;  // in a format

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

}  // namespace

const Function* findFunction(std::string_view name) {
  const auto* found = std::ranges::find(kFunctions, name, &Function::name);
  return found != std::end(kFunctions) ? found : nullptr;
}

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

}  // namespace idetcd::directive::template_parts
