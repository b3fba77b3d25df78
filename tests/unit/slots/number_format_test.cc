#include "slots/name_pattern.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace idetcd::slots {
namespace {

std::string write(NumberFormat format, int64_t id) { return std::string(format.write(id).view()); }

TEST(NumberFormat, WritesAsGoDoes) {
  constexpr int64_t kGreatest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(write({}, 1), "1");
  EXPECT_EQ(write({}, kGreatest), "9223372036854775807");
  EXPECT_EQ(write({.width = 3}, 7), "007");
  EXPECT_EQ(write({.width = 3}, 999), "999");
  EXPECT_EQ(write({.width = 3}, 1000), "1000");
  EXPECT_EQ(write({.base = 16}, 0xbeef), "beef");
  EXPECT_EQ(write({.base = 16, .width = 6}, 0xbeef), "00beef");
  EXPECT_EQ(write({.base = 16}, kGreatest), "7fffffffffffffff");
  EXPECT_EQ(write({.base = 8}, 8), "10");
  EXPECT_EQ(write({.base = 8}, kGreatest), std::string(21, '7'));
  EXPECT_EQ(write({.width = NumberFormat::kMaxWidth}, 5), std::string(62, '0') + "5");
}

TEST(NumberFormat, LengthGrowsWithTheId) {
  for (const int base : {8, 10, 16}) {
    for (const int width : {1, 2, 5, 63}) {
      const NumberFormat format{.base = base, .width = width};
      size_t before = 0;
      for (int64_t id = 1; id < (int64_t{1} << 62); id += id / 7 + 1) {
        EXPECT_EQ(format.length(id), format.write(id).view().size());
        EXPECT_GE(format.length(id), before);
        before = format.length(id);
      }
    }
  }
}

TEST(NumberFormat, Reads) {
  EXPECT_EQ(NumberFormat().read("42"), 42);
  EXPECT_EQ(NumberFormat().read("0042"), 42);
  EXPECT_EQ((NumberFormat{.base = 16}.read("2a")), 42);
  EXPECT_EQ((NumberFormat{.base = 8}.read("52")), 42);
  EXPECT_EQ((NumberFormat{.base = 8}.read("58")), std::nullopt);
  for (const char* none : {"", "0", "000", "-1", "+1", " 1", "1 ", "1a", "0x1", "9223372036854775808"}) {
    EXPECT_EQ(NumberFormat().read(none), std::nullopt) << none;
  }
}

}  // namespace
}  // namespace idetcd::slots
