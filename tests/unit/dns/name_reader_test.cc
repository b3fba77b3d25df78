#include "dns/message_reader.h"

#include <gtest/gtest.h>

#include "message.h"

namespace idetcd::dns {
namespace {

using test::bytes;

class NameReaderTest : public testing::Test {
 protected:
  bool isWithin(std::string_view name, std::string_view zone) {
    return dns::isWithin(bytes(test::wireName(name)), bytes(test::wireName(zone)), work_);
  }
  NameWork work_{1000};
};

TEST_F(NameReaderTest, ANameIsWithinItsZones) {
  for (const std::string_view zone : {"a.b.c.", "b.C.", "c.", "."}) EXPECT_TRUE(isWithin("A.b.c.", zone)) << zone;
  for (const std::string_view other : {"x.c.", "a.c.", ".", "c."}) EXPECT_FALSE(isWithin(other, "b.c.")) << other;
  EXPECT_FALSE(isWithin("ab.c.", "b.c.")) << "it ends so, but within a label";
}

TEST_F(NameReaderTest, ComparisonsCostWork) {
  NameWork little(3);
  const auto name = test::wireName("a.b.c.");
  EXPECT_TRUE(dns::isWithin(bytes(name), bytes(test::wireName("c.")), little));
  EXPECT_TRUE(little.isSpent());
}

TEST_F(NameReaderTest, APointerLeadsSomewhere) {
  const std::vector<uint8_t> message{0xc0, 0x0c, 1, 'a', 0, 0xff, 0xfe, 0xc0};
  EXPECT_EQ(pointerTarget(message, 0), 0x0cu);
  EXPECT_EQ(pointerTarget(message, 2), 0u) << "a label";
  EXPECT_EQ(pointerTarget(message, 4), 0u) << "the root";
  EXPECT_EQ(pointerTarget(message, 5), 0x3ffeu);
  EXPECT_EQ(pointerTarget(message, 7), 0u) << "half of one";
}

}  // namespace
}  // namespace idetcd::dns
