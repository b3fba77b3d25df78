#include "base/text.h"

namespace idetcd {

std::string lowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lowerCase(c);
  return lower;
}

std::string printable(std::string_view text) {
  constexpr size_t kMaxShownBytes = 100;
  std::string shown;
  for (const char c : text.substr(0, kMaxShownBytes)) {
    if (c >= ' ' && c <= '~') {
      shown += c;
    } else {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kMaxShownBytes) shown += "…";
  return shown;
}

}  // namespace idetcd
