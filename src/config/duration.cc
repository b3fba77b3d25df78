#include "config/duration.h"

#include "base/text.h"

namespace idetcd::config {
namespace {

constexpr uint64_t kMaxMagnitude = uint64_t{1} << 63;  // of a negative duration; a positive one ends one earlier

constexpr size_t kFractionDigits = 18;  // what 64 bits hold; an hour's 13th digit is below a nanosecond already

__extension__ using Uint128 = unsigned __int128;

constexpr std::array<std::pair<std::string_view, uint64_t>, 8> kUnits{{
    {"ns", 1},
    {"us", 1'000},
    {"\u00b5s", 1'000},  // micro sign
    {"\u03bcs", 1'000},  // Greek letter mu
    {"ms", 1'000'000},
    {"s", 1'000'000'000},
    {"m", 60'000'000'000},
    {"h", 3'600'000'000'000},
}};

std::string_view takeWhile(std::string_view* text, bool (*predicate)(char)) {
  const auto end = std::find_if_not(text->begin(), text->end(), predicate);
  const std::string_view taken = text->substr(0, static_cast<size_t>(end - text->begin()));
  text->remove_prefix(taken.size());
  return taken;
}

// The sum of one number with its unit; no value on overflow.
std::optional<uint64_t> nanoseconds(std::string_view whole, std::string_view fraction, uint64_t unit) {
  uint64_t value = 0;
  for (const char digit : whole) {
    const auto figure = static_cast<uint64_t>(digit - '0');
    if (value > (kMaxMagnitude - figure) / 10) return std::nullopt;
    value = value * 10 + figure;
  }
  if (value > kMaxMagnitude / unit) return std::nullopt;
  value *= unit;
  uint64_t numerator = 0;
  uint64_t denominator = 1;
  for (const char digit : fraction.substr(0, kFractionDigits)) {
    numerator = numerator * 10 + static_cast<uint64_t>(digit - '0');
    denominator *= 10;
  }
  const Uint128 part = static_cast<Uint128>(numerator) * unit / denominator;
  value += static_cast<uint64_t>(part);
  return value > kMaxMagnitude ? std::nullopt : std::optional(value);
}

}  // namespace

Result<std::chrono::nanoseconds> parseDuration(std::string_view text) {
  const auto invalid = [&] { return fail(fmt::format("time: invalid duration \"{}\"", text)); };
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest == "0") return std::chrono::nanoseconds(0);
  if (rest.empty()) return invalid();

  uint64_t total = 0;
  while (!rest.empty()) {
    const std::string_view whole = takeWhile(&rest, isDigit);
    std::string_view fraction;
    if (rest.starts_with('.')) {
      rest.remove_prefix(1);
      fraction = takeWhile(&rest, isDigit);
    }
    if (whole.empty() && fraction.empty()) return invalid();
    const std::string_view unit = takeWhile(&rest, [](char c) { return c != '.' && !isDigit(c); });
    if (unit.empty()) return fail(fmt::format("time: missing unit in duration \"{}\"", text));
    const auto* known =
        std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& each) { return each.first == unit; });
    if (known == kUnits.end()) return fail(fmt::format("time: unknown unit \"{}\" in duration \"{}\"", unit, text));
    const std::optional<uint64_t> value = nanoseconds(whole, fraction, known->second);
    if (!value || *value > kMaxMagnitude - total) return invalid();
    total += *value;
  }
  if (total > kMaxMagnitude - (negative ? 0 : 1)) return invalid();
  return std::chrono::nanoseconds(static_cast<int64_t>(negative ? 0 - total : total));
}

Result<std::chrono::nanoseconds> parseDurationOrSeconds(std::string_view text) {
  const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(), isDigit);
  return parseDuration(is_number ? std::string(text) + "s" : std::string(text));
}

}  // namespace idetcd::config
