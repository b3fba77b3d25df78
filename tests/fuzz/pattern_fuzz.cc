// Patterns: an ID gives a name, and the name the ID. The input is a limit, a pattern, and a name that may be one of its
// own, a line each.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz/check.h"
#include "naming/record_codec.h"
#include "slots/name_pattern.h"

namespace {

using namespace idetcd;

std::string_view takeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

void checkSlot(const slots::NamePattern& pattern, int64_t id) {
  const std::string name = pattern.render(id);
  FUZZ_CHECK(pattern.recognise(name) == id);
  FUZZ_CHECK(name.starts_with(pattern.literalPrefix()));
  const Result<dns::Name> wire = naming::decodeKey(name);
  FUZZ_CHECK(wire.has_value() && wire->isWithin(pattern.zone()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view number = takeLine(&rest);
  int64_t limit = 0;
  std::from_chars(number.data(), number.data() + number.size(), limit);
  const std::string_view text = takeLine(&rest);
  const Result<slots::NamePattern> pattern = slots::NamePattern::parse(text, limit);
  if (!pattern) {
    FUZZ_CHECK(!pattern.error().message.empty());
    return 0;
  }
  for (int64_t id = limit; id > 0; id /= 2) {
    checkSlot(*pattern, id);
    if (id > 1) checkSlot(*pattern, id - 1);
  }
  const std::optional<int64_t> id = pattern->recognise(rest);
  if (id) FUZZ_CHECK(*id >= 1 && *id <= limit && pattern->render(*id) == rest);
  return 0;
}
