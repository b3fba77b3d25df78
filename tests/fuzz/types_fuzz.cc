// Mnemonics of types, classes, rcodes and opcodes: any text is a number or none, and each number's text leads back to
// it.
#include <cstdint>
#include <string>
#include <string_view>

#include "dns/types.h"
#include "fuzz/check.h"

namespace {

using namespace idetcd;

void check(const dns::Mnemonics& names, uint16_t largest, std::string_view text, uint16_t number) {
  if (const auto parsed = names.parse(text)) {
    FUZZ_CHECK(*parsed <= largest);
    FUZZ_CHECK(names.parse(names.toString(*parsed)) == parsed);
  }
  const std::string printed = names.toString(number);
  for (const char c : printed) FUZZ_CHECK((c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-');
  if (number <= largest) FUZZ_CHECK(names.parse(printed) == number);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto number = static_cast<uint16_t>(size < 2 ? 0 : data[0] << 8 | data[size - 1]);
  check(dns::kTypeNames, 0xffff, text, number);
  check(dns::kClassNames, 0xffff, text, number);
  check(dns::kRcodeNames, 0xfff, text, number);
  check(dns::kOpcodeNames, 0xf, text, number);
  return 0;
}
