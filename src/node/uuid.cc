#include "node/uuid.h"

namespace idetcd::node {

std::string randomUuid(RandomSource& random) {
  std::array<uint8_t, 16> bytes;
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t bits = random.next();
    std::memcpy(bytes.data() + i, &bits, sizeof bits);
  }
  bytes[6] = static_cast<uint8_t>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<uint8_t>((bytes[8] & 0x3f) | 0x80);
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  text.reserve(36);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kHex[bytes[i] >> 4];
    text += kHex[bytes[i] & 0x0f];
  }
  return text;
}

bool isUuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    if (i == 8 || i == 13 || i == 18 || i == 23 ? c != '-' : !hex) return false;
  }
  return true;
}

}  // namespace idetcd::node
