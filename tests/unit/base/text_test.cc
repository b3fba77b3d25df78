#include "base/text.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

TEST(Text, LowerCaseIsOfAsciiLettersOnly) {
  EXPECT_EQ(lowerCase("aZ@[`{09\xc3\x84"), "az@[`{09\xc3\x84");
  EXPECT_EQ(lowerCase(""), "");
}

TEST(Text, ANumberIsTheWholeText) {
  EXPECT_EQ(parseNumber<uint16_t>("0"), 0);
  EXPECT_EQ(parseNumber<uint16_t>("065535"), 65535);
  EXPECT_EQ(parseNumber<int64_t>("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(parseNumber<int64_t>("ff", 16), 255);
  for (const char* text : {"", "-1", "-0", "+1", " 1", "1 ", "1x", "0x1", "65536", "99999999999999999999"}) {
    EXPECT_FALSE(parseNumber<uint16_t>(text)) << text;
  }
}

TEST(Text, WhatIsNotPrintableIsEscaped) {
  EXPECT_EQ(printable(" a~"), " a~");
  EXPECT_EQ(printable(std::string_view("\0\n\x7f\xff", 4)), "\\x00\\x0a\\x7f\\xff");
}

TEST(Text, WhatIsLongIsCutOff) {
  EXPECT_EQ(printable(std::string(100, 'a')), std::string(100, 'a'));
  EXPECT_EQ(printable(std::string(101, 'a')), std::string(100, 'a') + "…");
}

}  // namespace
}  // namespace idetcd
