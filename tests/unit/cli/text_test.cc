#include "cli/text.h"

#include <gtest/gtest.h>

#include "cli/top_screen.h"

namespace idetcd::cli {
namespace {

using nlohmann::json;

TEST(CliText, WhatStrangersNamedMovesNoCursor) {
  EXPECT_EQ(escaped("a.b\x1b[2J\n\x7f\xc3\xa4"), "a.b\\x1b[2J\\x0a\\x7f\\xc3\\xa4");
  EXPECT_EQ(escaped(std::string(300, 'a')).size(), 300u);
}

TEST(CliText, Names) {
  EXPECT_EQ(withoutDot("a.b."), "a.b");
  EXPECT_EQ(withoutDot("a.b"), "a.b");
  EXPECT_EQ(withoutDot("."), ".");
  EXPECT_EQ(withDot("a.b"), "a.b.");
  EXPECT_EQ(withDot("a.b."), "a.b.");
  EXPECT_EQ(firstLabel("worker1.tf.local."), "worker1");
}

TEST(CliText, ColumnsAreAligned) {
  EXPECT_EQ(table({{"A", "LONG", "C"}, {"long", "b", ""}, {"x"}}),
            "A     LONG  C\n"
            "long  b\n"
            "x\n");
  EXPECT_EQ(table({}), "");
}

TEST(CliText, TimesAndSizes) {
  EXPECT_EQ(humanSeconds(0.85), "850 ms");
  EXPECT_EQ(humanSeconds(17.24), "17.2 s");
  EXPECT_EQ(humanSeconds(185), "3 min 5 s");
  EXPECT_EQ(humanSeconds(8000), "2 h 13 min");
  EXPECT_EQ(humanSeconds(5 * 86400 + 3 * 3600), "5 d 3 h");
  EXPECT_EQ(humanSeconds(-3), "-3.0 s");
  EXPECT_EQ(humanSeconds(1e300), "?");
  EXPECT_EQ(roughSeconds(59.9), "59 s");
  EXPECT_EQ(roughSeconds(179), "2 min");
  EXPECT_EQ(roughSeconds(8000), "2 h");
  EXPECT_EQ(roughSeconds(1e6), "11 d");
  EXPECT_EQ(roughSeconds(-1), "0 s");
  EXPECT_EQ(roughSeconds(1e300), "?");
  EXPECT_EQ(humanLatency(0.00031), "0.310 ms");
  EXPECT_EQ(humanLatency(0.0123), "12 ms");
  EXPECT_EQ(humanLatency(1.25), "1.2 s");
  EXPECT_EQ(humanSize(812), "812 ");
  EXPECT_EQ(humanSize(3500), "3.4 Ki");
  EXPECT_EQ(humanSize(1.25e6), "1.2 Mi");
  EXPECT_EQ(humanRate(0), "0");
  EXPECT_EQ(humanRate(0.04), "0.04");
  EXPECT_EQ(humanRate(1234.5), "1234");
  EXPECT_EQ(humanShare(0.413), "41 %");
  EXPECT_EQ(humanShare(0.003), "0.3 %");
}

TEST(CliText, WhatIsMissingOrOfAnotherTypeIsAbsent) {
  const json object = {{"text", "a"}, {"number", 1.5}, {"flag", true}, {"array", {1}}, {"null", nullptr}};
  EXPECT_EQ(textAt(object, "text"), "a");
  EXPECT_EQ(numberAt(object, "number"), 1.5);
  EXPECT_TRUE(flagAt(object, "flag"));
  EXPECT_EQ(arrayAt(object, "array").size(), 1u);
  for (const char* key : {"null", "nowhere"}) {
    EXPECT_EQ(textAt(object, key), std::nullopt);
    EXPECT_EQ(numberAt(object, key), std::nullopt);
    EXPECT_FALSE(flagAt(object, key));
    EXPECT_TRUE(arrayAt(object, key).empty());
  }
  for (const json& other : {json(nullptr), json(3), json::array({1})}) {
    EXPECT_EQ(textAt(other, "text"), std::nullopt);
    EXPECT_EQ(numberAt(other, "number"), std::nullopt);
    EXPECT_FALSE(flagAt(other, "flag"));
    EXPECT_TRUE(arrayAt(other, "array").empty());
  }
}

TEST(CliText, JsonIsOneLineWhateverItQuotes) {
  EXPECT_EQ(toLine({{"a", "x\ny"}}), "{\"a\":\"x\\ny\"}\n");
  EXPECT_EQ(toLine({{"a", "\xff"}}), "{\"a\":\"\xEF\xBF\xBD\"}\n");
}

TEST(CliText, TheScreenIsNotLeft) {
  EXPECT_EQ(fitted("abcdef\nab\nc\n", {.width = 4, .height = 3}, "|"), "abcd|ab|") << "the last line is left free";
  EXPECT_EQ(fitted("a", {.width = 4, .height = 3}, "|"), "a|");
  EXPECT_EQ(fitted("a\n", {.width = 0, .height = 0}, "|").size(), 0u) << "nothing is shown on nothing";
}

}  // namespace
}  // namespace idetcd::cli
