#include "config/duration.h"

#include <chrono>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace idetcd::config {
namespace {

using namespace std::chrono_literals;

TEST(Duration, ReadsWhatGoReads) {
  const struct {
    std::string_view text;
    std::chrono::nanoseconds value;
  } cases[] = {
      {"0", 0ns},
      {"+0", 0ns},
      {"-0", 0ns},
      {"5s", 5s},
      {"30s", 30s},
      {"300ms", 300ms},
      {"1h15m", 75min},
      {"1h15m30.918273645s", 1h + 15min + 30s + 918273645ns},
      {"1.5s", 1500ms},
      {"0.5s", 500ms},
      {".5s", 500ms},
      {"1.s", 1s},
      {"-1.5h", -90min},
      {"+5s", 5s},
      {"10ns", 10ns},
      {"11us", 11us},
      {"12\u00b5s", 12us},
      {"12\u03bcs", 12us},
      {"1ns1us1ms1s1m1h", 1h + 1min + 1s + 1ms + 1us + 1ns},
      {"5s5s", 10s},
      {"007s", 7s},
      {"0.3333333333333333333h", 20min - 1ns},
      {"0.100000000000000000000h", 6min},
      {"0.0000000001s", 0ns},
      {"9007199254.740993ms", 9007199254740993ns},
      {"9223372036854775807ns", std::chrono::nanoseconds(INT64_MAX)},
      {"-9223372036854775808ns", std::chrono::nanoseconds(INT64_MIN)},
  };
  for (const auto& each : cases) {
    const auto parsed = parseDuration(each.text);
    ASSERT_TRUE(parsed) << each.text << ": " << parsed.error().message;
    EXPECT_EQ(parsed->count(), each.value.count()) << each.text;
  }
}

TEST(Duration, RefusesWhatGoRefuses) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"", "time: invalid duration \"\""},
      {"-", "time: invalid duration \"-\""},
      {"s", "time: invalid duration \"s\""},
      {".", "time: invalid duration \".\""},
      {".s", "time: invalid duration \".s\""},
      {"+.s", "time: invalid duration \"+.s\""},
      {"--5s", "time: invalid duration \"--5s\""},
      {" 5s", "time: invalid duration \" 5s\""},
      {"5", "time: missing unit in duration \"5\""},
      {"1h5", "time: missing unit in duration \"1h5\""},
      {"00", "time: missing unit in duration \"00\""},
      {"5d", "time: unknown unit \"d\" in duration \"5d\""},
      {"5S", "time: unknown unit \"S\" in duration \"5S\""},
      {"5s ", "time: unknown unit \"s \" in duration \"5s \""},
      {"5-s", "time: unknown unit \"-s\" in duration \"5-s\""},
      {"9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""},
      {"-9223372036854775809ns", "time: invalid duration \"-9223372036854775809ns\""},
      {"9223372036854775807ns1ns", "time: invalid duration \"9223372036854775807ns1ns\""},
      {"99999999999999999999s", "time: invalid duration \"99999999999999999999s\""},
      {"3000000h", "time: invalid duration \"3000000h\""},
  };
  for (const auto& each : cases) {
    const auto parsed = parseDuration(each.text);
    ASSERT_FALSE(parsed) << each.text;
    EXPECT_EQ(parsed.error().message, each.error) << each.text;
  }
}

TEST(Duration, ANumberMayBeSeconds) {
  EXPECT_EQ(parseDurationOrSeconds("10").value(), std::chrono::seconds(10));
  EXPECT_EQ(parseDurationOrSeconds("10ms").value(), std::chrono::milliseconds(10));
  EXPECT_EQ(parseDurationOrSeconds("0").value(), std::chrono::seconds(0));
  for (const char* text : {"", "1.5", "-3", "x"}) EXPECT_FALSE(parseDurationOrSeconds(text)) << text;
}

}  // namespace
}  // namespace idetcd::config
