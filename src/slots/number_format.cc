#include "slots/number_format.h"

#include "base/text.h"

namespace idetcd::slots {

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

}  // namespace idetcd::slots
