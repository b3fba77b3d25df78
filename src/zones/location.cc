#include "zones/location.h"

#include "base/text.h"
#include "dns/wire.h"
#include "zones/text_data.h"

namespace idetcd::zones {

namespace {

std::string_view take(std::span<const Word>& words) {
  const std::string_view text = words.front().text;
  words = words.subspan(1);
  return text;
}

// A number of metres, in centimetres.
std::optional<int64_t> parseCentimetres(std::string_view text) {
  if (text.ends_with('m')) text.remove_suffix(1);
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const size_t dot = text.find('.');
  const auto whole = parseNumber<uint32_t>(text.substr(0, dot));
  std::string fraction(dot == text.npos ? "" : text.substr(dot + 1));
  if (!whole || fraction.size() > 2) return std::nullopt;
  fraction.resize(2, '0');
  const auto hundredths = parseNumber<uint8_t>(fraction);
  if (!hundredths) return std::nullopt;
  const int64_t value = int64_t{*whole} * 100 + *hundredths;
  return negative ? -value : value;
}

// The most significant digit and a power of ten.
std::optional<uint8_t> toPowerOfTen(int64_t value) {
  if (value < 0) return std::nullopt;
  unsigned power = 0;
  for (; value >= 10; value /= 10) ++power;
  return power <= 9 ? std::optional(static_cast<uint8_t>(value << 4 | power)) : std::nullopt;
}

// Up to one of two lower-case letters, in thousandths of a second from 2^31.
Result<void> readAngle(std::span<const Word>& words, std::string_view letters, unsigned most, uint32_t& value) {
  const std::array<unsigned, 3> units{3'600'000, 60'000, 1000};
  int64_t sum = 0;
  for (size_t i = 0; !words.empty(); ++i) {
    const std::string_view text = take(words);
    const size_t letter = text.size() == 1 ? letters.find(lowerCase(text[0])) : letters.npos;
    if (letter != letters.npos && i > 0) {
      if (sum > int64_t{most} * units[0]) break;
      const bool plus = letter == 0;
      value = static_cast<uint32_t>((int64_t{1} << 31) + (plus ? sum : -sum));
      return {};
    }
    if (i == units.size()) break;
    std::string digits(text.substr(0, text.find('.')));
    std::string fraction(i == 2 && text.size() > digits.size() ? text.substr(digits.size() + 1) : "");
    if (i != 2 && digits.size() != text.size()) break;
    if (fraction.size() > 3) break;
    fraction.resize(3, '0');
    const auto whole = parseNumber<uint16_t>(digits);
    const auto thousandths = parseNumber<uint16_t>(fraction);
    if (!whole || !thousandths || (i > 0 && *whole > 59)) break;
    sum += int64_t{*whole} * units.at(i) + *thousandths;
  }
  return fail(
      "a location is: DEGREES [MINUTES [SECONDS]] N|S DEGREES [MINUTES [SECONDS]] E|W ALTITUDE [SIZE [PRECISION "
      "[PRECISION]]]");
}

}  // namespace

Result<void> readLocation(std::span<const Word> words, std::vector<uint8_t>& rdata) {
  uint32_t latitude = 0;
  uint32_t longitude = 0;
  if (auto read = readAngle(words, "ns", 90, latitude); !read) return read;
  if (auto read = readAngle(words, "ew", 180, longitude); !read) return read;
  if (words.empty() || words.size() > 4) return fail("a location has one altitude, and at most three sizes");
  const auto altitude = parseCentimetres(take(words));
  if (!altitude) return fail("an altitude is a number of metres");
  std::array<uint8_t, 3> sizes{0x12, 0x16, 0x13};  // 1 m, 10 km, 10 m
  for (uint8_t& size : sizes) {
    if (words.empty()) break;
    const std::string_view text = take(words);
    const auto value = parseCentimetres(text);
    const auto power = value ? toPowerOfTen(*value) : std::nullopt;
    if (!power) return notA(text, "number of metres");
    size = *power;
  }
  const int64_t raised = *altitude + 10'000'000;
  if (raised < 0 || raised > int64_t{std::numeric_limits<uint32_t>::max()})
    return fail("an altitude that is out of range");
  std::array<uint8_t, 16> bytes{0, sizes[0], sizes[1], sizes[2]};
  dns::store32(&bytes[4], latitude);
  dns::store32(&bytes[8], longitude);
  dns::store32(&bytes[12], static_cast<uint32_t>(raised));
  rdata.insert(rdata.end(), bytes.begin(), bytes.end());
  return {};
}

}  // namespace idetcd::zones
