#include "cluster/go_format.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace idetcd::cluster {
namespace {

constexpr uint32_t kReplacementCharacter = 0xfffd;

struct Spec {
  bool plus = false;
  bool minus = false;
  bool sharp = false;
  bool zero = false;
  bool space = false;
  std::optional<int> width;
  std::optional<int> precision;
  char verb = 0;
};

std::string utf8(uint32_t rune) {
  if (rune > 0x10ffff || (rune >= 0xd800 && rune <= 0xdfff)) rune = kReplacementCharacter;
  const auto octet = [](uint32_t bits) { return static_cast<char>(bits); };
  const auto tail = [&](uint32_t bits) { return octet(0x80 | (bits & 0x3f)); };
  if (rune < 0x80) return {octet(rune)};
  if (rune < 0x800) return {octet(0xc0 | rune >> 6), tail(rune)};
  if (rune < 0x10000) return {octet(0xe0 | rune >> 12), tail(rune >> 6), tail(rune)};
  return {octet(0xf0 | rune >> 18), tail(rune >> 12), tail(rune >> 6), tail(rune)};
}

bool isRuneStart(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

std::string pad(std::string text, const Spec& spec, char fill) {
  const auto runes = static_cast<int>(std::count_if(text.begin(), text.end(), isRuneStart));
  const int missing = spec.width.value_or(0) - runes;
  if (missing <= 0) return text;
  const auto count = static_cast<size_t>(missing);
  return spec.minus ? text.append(count, ' ') : text.insert(0, count, fill);
}

std::string pad(std::string text, const Spec& spec) { return pad(std::move(text), spec, spec.zero ? '0' : ' '); }

std::string quote(std::string_view text, char mark) {
  std::string quoted(1, mark);
  for (const char c : text) {
    if (c == mark || c == '\\') quoted.push_back('\\');
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      quoted += fmt::format("\\x{:02x}", c);
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back(mark);
  return quoted;
}

unsigned baseOf(char verb) {
  switch (verb) {
    case 'b':
      return 2;
    case 'o':
    case 'O':
      return 8;
    case 'x':
    case 'X':
      return 16;
    default:
      return 10;
  }
}

// A zero that pads stands between sign or base and digits: Go counts it as precision, in which the sign has its place.
std::string formatInteger(int64_t value, const Spec& spec) {
  const bool negative = value < 0;
  uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const bool has_sign = negative || spec.plus || spec.space;
  int digits = spec.precision.value_or(0);
  if (spec.precision && digits == 0 && magnitude == 0) return pad("", spec, ' ');
  if (!spec.precision && spec.zero && spec.width) digits = *spec.width - (has_sign ? 1 : 0);

  const std::string_view figures = spec.verb == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  const unsigned base = baseOf(spec.verb);
  std::string text;
  do {
    text.push_back(figures[magnitude % base]);
    magnitude /= base;
  } while (magnitude > 0);
  while (static_cast<int>(text.size()) < digits) text.push_back('0');
  if (spec.sharp && base == 2) text += "b0";
  if (spec.sharp && base == 8 && text.back() != '0') text += "0";
  if (spec.sharp && base == 16) text += spec.verb == 'X' ? "X0" : "x0";
  if (spec.verb == 'O') text += "o0";
  if (has_sign) text.push_back(negative ? '-' : spec.plus ? '+' : ' ');
  std::reverse(text.begin(), text.end());
  return pad(std::move(text), spec, ' ');
}

std::string formatHex(std::string_view text, const Spec& spec) {
  if (spec.precision) text = text.substr(0, static_cast<size_t>(*spec.precision));
  const std::string_view prefix = !spec.sharp ? "" : spec.verb == 'X' ? "0X" : "0x";
  std::string hex;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && spec.space) hex.push_back(' ');
    if (i == 0 || spec.space) hex += prefix;
    const auto octet = static_cast<unsigned char>(text[i]);
    hex += spec.verb == 'X' ? fmt::format("{:02X}", octet) : fmt::format("{:02x}", octet);
  }
  return pad(std::move(hex), spec);
}

// Cut to `precision` characters.
std::string_view truncate(std::string_view text, const Spec& spec) {
  if (!spec.precision) return text;
  int runes = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (isRuneStart(text[i]) && ++runes > *spec.precision) return text.substr(0, i);
  }
  return text;
}

Result<std::string> formatValue(const GoValue& value, Spec spec) {
  if (spec.verb == 'v') spec.plus = false;
  if (const auto* number = std::get_if<int64_t>(&value)) {
    const bool is_rune = *number >= 0 && *number <= 0x10ffff;
    const std::string rune = utf8(is_rune ? static_cast<uint32_t>(*number) : kReplacementCharacter);
    if (spec.verb == 'c') return pad(rune, spec);
    if (spec.verb == 'q') return pad(quote(rune, '\''), spec);
    if (std::string_view("vdboOxX").find(spec.verb) != std::string_view::npos) return formatInteger(*number, spec);
    if (spec.verb == 's') return fail("printf: %s wants a string and not a number, use %d");
  } else {
    const std::string& text = std::get<std::string>(value);
    if (spec.verb == 's' || (spec.verb == 'v' && !spec.sharp)) return pad(std::string(truncate(text, spec)), spec);
    if (spec.verb == 'q' || spec.verb == 'v') return pad(quote(truncate(text, spec), '"'), spec);
    if (spec.verb == 'x' || spec.verb == 'X') return formatHex(text, spec);
    if (std::string_view("dboOc").find(spec.verb) != std::string_view::npos) {
      return fail(fmt::format("printf: %{} wants a number and not a string, use %s", spec.verb));
    }
  }
  return fail(fmt::format("printf: the verb %{} is not supported", spec.verb));
}

class Printer {
 public:
  Printer(std::string_view format, std::span<const GoValue> args) : format_(format), args_(args) {}

  Result<std::string> run() {
    while (pos_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', pos_), format_.size());
      out_.append(format_.substr(pos_, percent - pos_));
      pos_ = percent;
      if (pos_ == format_.size()) break;
      ++pos_;
      if (auto printed = directive(); !printed) return tl::unexpected(printed.error());
      if (out_.size() > kMaxFormattedLength) return tooLong();
    }
    if (out_.size() > kMaxFormattedLength) return tooLong();
    if (!indexed_ && next_arg_ < args_.size()) {
      return fail(fmt::format("printf: {} arguments, but \"{}\" uses {}", args_.size(), format_, next_arg_));
    }
    return std::move(out_);
  }

 private:
  // From behind the percent sign: [flags][[index]*|width][.[[index]*|precision]][[index]]verb
  Result<void> directive() {
    Spec spec;
    readFlags(&spec);
    if (auto width = readNumber(&spec.width); !width) return width;
    if (spec.width && *spec.width < 0) {  // from an argument: a minus flag and a width
      spec.minus = true;
      spec.zero = false;
      spec.width = -*spec.width;
    }
    if (peek() == '.') {
      ++pos_;
      if (auto precision = readNumber(&spec.precision); !precision) return precision;
      if (!spec.precision) spec.precision = 0;
      if (*spec.precision < 0) spec.precision.reset();
    }
    if (auto index = readIndex(); !index) return index;
    if (pos_ == format_.size()) return fail(fmt::format("printf: \"{}\" ends without a verb", format_));
    spec.verb = format_[pos_++];
    if (spec.verb == '%') {
      out_.push_back('%');
      return {};
    }
    const Result<const GoValue*> value = takeArg();
    if (!value) return tl::unexpected(value.error());
    Result<std::string> text = formatValue(**value, spec);
    if (!text) return tl::unexpected(text.error());
    out_ += *text;
    return {};
  }

  void readFlags(Spec* spec) {
    for (;; ++pos_) {
      switch (peek()) {
        case '+':
          spec->plus = true;
          break;
        case '-':
          spec->minus = true;
          spec->zero = false;
          break;
        case '#':
          spec->sharp = true;
          break;
        case '0':
          spec->zero = !spec->minus;
          break;
        case ' ':
          spec->space = true;
          break;
        default:
          return;
      }
    }
  }

  // Digits, or an argument's value for a star; nothing if neither is there.
  Result<void> readNumber(std::optional<int>* number) {
    if (auto index = readIndex(); !index) return index;
    if (peek() == '*') {
      ++pos_;
      const Result<const GoValue*> value = takeArg();
      if (!value) return tl::unexpected(value.error());
      const auto* width = std::get_if<int64_t>(*value);
      if (width == nullptr) return fail("printf: * wants a number and not a string");
      if (*width > kMaxFormatWidth || *width < -kMaxFormatWidth) return tooWide();
      *number = static_cast<int>(*width);
      return {};
    }
    while (peek() >= '0' && peek() <= '9') {
      *number = number->value_or(0) * 10 + (format_[pos_++] - '0');
      if (**number > kMaxFormatWidth) return tooWide();
    }
    return {};
  }

  // "[n]": the argument that the next star or verb takes, counted from 1.
  Result<void> readIndex() {
    if (peek() != '[') return {};
    const size_t end = format_.find(']', pos_);
    const std::string_view digits =
        end == std::string_view::npos ? std::string_view() : format_.substr(pos_ + 1, end - pos_ - 1);
    size_t index = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9' || index > args_.size()) index = args_.size() + 1;
      if (index <= args_.size()) index = index * 10 + static_cast<size_t>(c - '0');
    }
    if (index == 0 || index > args_.size()) return fail(fmt::format("printf: bad argument index in \"{}\"", format_));
    indexed_ = true;
    next_arg_ = index - 1;
    pos_ = end + 1;
    return {};
  }

  Result<const GoValue*> takeArg() {
    if (next_arg_ >= args_.size()) return fail(fmt::format("printf: too few arguments for \"{}\"", format_));
    return &args_[next_arg_++];
  }

  char peek() const { return pos_ < format_.size() ? format_[pos_] : '\0'; }
  tl::unexpected<Error> tooWide() const {
    return fail(fmt::format("printf: a width or precision in \"{}\" is more than {}", format_, kMaxFormatWidth));
  }
  static tl::unexpected<Error> tooLong() {
    return fail(fmt::format("printf: the result is longer than {} octets", kMaxFormattedLength));
  }

  const std::string_view format_;
  const std::span<const GoValue> args_;
  size_t pos_ = 0;
  size_t next_arg_ = 0;
  bool indexed_ = false;
  std::string out_;
};

std::string join(std::span<const GoValue> args, bool always_blank) {
  std::string text;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool numbers = i > 0 && args[i].index() == 0 && args[i - 1].index() == 0;
    if (i > 0 && (always_blank || numbers)) text.push_back(' ');
    if (const auto* number = std::get_if<int64_t>(&args[i])) {
      text += std::to_string(*number);
    } else {
      text += std::get<std::string>(args[i]);
    }
  }
  return text;
}

}  // namespace

Result<std::string> goSprintf(std::string_view format, std::span<const GoValue> args) {
  return Printer(format, args).run();
}

std::string goSprint(std::span<const GoValue> args) { return join(args, false); }

std::string goSprintln(std::span<const GoValue> args) { return join(args, true) + "\n"; }

}  // namespace idetcd::cluster
