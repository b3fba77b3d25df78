#include "zones/text_data.h"

#include "base/text.h"
#include "dns/name.h"

namespace idetcd::zones {

namespace {

int hexOf(char c) {
  if (isDigit(c)) return c - '0';
  c = lowerCase(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
int base32Of(char c) {
  if (isDigit(c)) return c - '0';
  c = lowerCase(c);
  return c >= 'a' && c <= 'v' ? c - 'a' + 10 : -1;
}
int base64Of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (isDigit(c)) return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Digits of `bits` each, gathered to bytes; what is left of the last one must be zero, and less than a digit.
class BitReader {
 public:
  BitReader(unsigned bits, std::vector<uint8_t>& to) : bits_(bits), to_(to) {}
  bool add(int digit) {
    if (digit < 0) return false;
    value_ = value_ << bits_ | static_cast<unsigned>(digit);
    held_ += bits_;
    if (held_ >= 8) {
      held_ -= 8;
      to_.push_back(static_cast<uint8_t>(value_ >> held_));
      value_ &= (1u << held_) - 1;
    }
    return true;
  }
  bool isWhole() const { return value_ == 0 && held_ < bits_; }

 private:
  const unsigned bits_;
  std::vector<uint8_t>& to_;
  unsigned value_ = 0;
  unsigned held_ = 0;
};

}  // namespace

bool decodeHex(std::string_view text, std::vector<uint8_t>& to) {
  BitReader bits(4, to);
  for (const char c : text) {
    if (!bits.add(hexOf(c))) return false;
  }
  return text.size() % 2 == 0;
}

bool decodeBase64(std::string_view text, std::vector<uint8_t>& to) {
  const size_t padding = text.size() - (text.find_last_not_of('=') + 1);
  if (text.size() % 4 != 0 || padding > 2) return false;
  BitReader bits(6, to);
  for (const char c : text.substr(0, text.size() - padding)) {
    if (!bits.add(base64Of(c))) return false;
  }
  return bits.isWhole();
}

bool decodeBase32Hex(std::string_view text, std::vector<uint8_t>& to) {
  BitReader bits(5, to);
  return std::ranges::all_of(text, [&](char c) { return bits.add(base32Of(c)); }) && bits.isWhole();
}

bool unescape(std::string_view text, std::vector<uint8_t>& to) {
  for (size_t pos = 0; pos < text.size();) {
    const int byte = dns::readEscapedByte(text, pos);
    if (byte < 0) return false;
    to.push_back(static_cast<uint8_t>(byte));
  }
  return true;
}

tl::unexpected<Error> notA(std::string_view text, std::string_view what) {
  return fail(fmt::format("'{}' is no {}", printable(text), what));
}

}  // namespace idetcd::zones
