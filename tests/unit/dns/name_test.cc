#include "dns/name.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "message.h"

namespace idetcd::dns {
namespace {

using test::bytes;
using test::wireName;
using test::wireNameOfSize;

Name parsed(std::string_view text) {
  const Result<Name> name = Name::parse(text);
  EXPECT_TRUE(name.has_value()) << text;
  return name.value_or(Name());
}
std::string wireOf(const Name& name) { return test::text(name.wire()); }

TEST(Name, DefaultIsTheRoot) {
  const Name root;
  EXPECT_TRUE(root.isRoot());
  EXPECT_EQ(root.size(), 1u);
  EXPECT_EQ(root.toString(), ".");
  EXPECT_EQ(parsed("."), root);
}

TEST(Name, ParsesWithAndWithoutTheTrailingDot) {
  const Name name = parsed("worker1.tf.local.");
  EXPECT_EQ(wireOf(name), wireName("worker1.tf.local."));
  EXPECT_EQ(name, parsed("worker1.tf.local"));
  EXPECT_EQ(name.toString(), "worker1.tf.local.");
  EXPECT_FALSE(name.isRoot());
}

TEST(Name, FoldsAsciiAndNothingElse) {
  EXPECT_EQ(parsed("WoRKer1.TF.LoCaL."), parsed("worker1.tf.local."));
  EXPECT_EQ(wireOf(parsed("\\065\\090@[`{\\192\\223.")), test::label("az@[`{\xc0\xdf") + '\0');
  EXPECT_EQ(Name::fromWire(bytes(wireName("AzAZ.[]."))), parsed("azaz.[]."));
  EXPECT_FALSE(parsed("\\192.") == parsed("\\224."));  // À and à in Latin-1: not the same to DNS
}

TEST(Name, FoldingLeavesLengthBytesAlone) {
  // A label of 63 bytes has the length '?', the largest; 'A' is above it.
  const std::string wire = test::label(std::string(63, 'Q')) + '\0';
  const Name name = Name::fromWire(bytes(wire));
  EXPECT_EQ(wireOf(name), test::label(std::string(63, 'q')) + '\0');
}

TEST(Name, ReadsEscapes) {
  EXPECT_EQ(wireOf(parsed("a\\.b.c.")), test::label("a.b") + test::label("c") + '\0');
  EXPECT_EQ(wireOf(parsed("\\000\\255\\032.")), test::label(std::string("\0\xff ", 3)) + '\0');
  EXPECT_EQ(wireOf(parsed("\\\\.")), test::label("\\") + '\0');
  EXPECT_EQ(wireOf(parsed("\\a\\B.")), test::label("ab") + '\0');
  EXPECT_EQ(wireOf(parsed("\\046")), test::label(".") + '\0');
  EXPECT_EQ(wireOf(parsed("a\\.")), test::label("a.") + '\0');  // the dot is escaped: no trailing one
}

TEST(Name, RefusesWhatIsNoName) {
  for (const char* text :
       {"", "..", ".a", "a..", "a..b", ".a.", "\\", "a\\", "a.\\", "\\1", "\\12", "\\1a2", "\\12a", "\\256", "\\999"}) {
    EXPECT_FALSE(Name::parse(text).has_value()) << text;
  }
}

TEST(Name, RefusalsSayWhy) {
  EXPECT_NE(Name::parse("a..b").error().message.find("empty label"), std::string::npos);
  EXPECT_NE(Name::parse("\\300").error().message.find("escape"), std::string::npos);
  EXPECT_NE(Name::parse(std::string(64, 'a')).error().message.find("63"), std::string::npos);
}

TEST(Name, LabelsHoldUpTo63Bytes) {
  for (const std::string tail : {"", ".", ".b", ".b."}) {
    EXPECT_TRUE(Name::parse(std::string(63, 'a') + tail).has_value()) << tail;
    EXPECT_FALSE(Name::parse(std::string(64, 'a') + tail).has_value()) << tail;
  }
  EXPECT_FALSE(Name::parse("b." + std::string(64, 'a')).has_value());
  std::string escaped;
  for (int i = 0; i < 63; ++i) escaped += "\\001";
  EXPECT_TRUE(Name::parse(escaped).has_value());
  EXPECT_FALSE(Name::parse(escaped + "a").has_value());
}

TEST(Name, HoldsUpTo255Bytes) {
  for (size_t size = 240; size <= 300; ++size) {
    const std::string text = nameToString(bytes(wireNameOfSize(size)).data());
    const Result<Name> with_dot = Name::parse(text);
    const Result<Name> without = Name::parse(std::string_view(text).substr(0, text.size() - 1));
    EXPECT_EQ(with_dot.has_value(), size <= 255) << size;
    EXPECT_EQ(without.has_value(), size <= 255) << size;
    if (size > 255) continue;
    EXPECT_EQ(with_dot->size(), size);
    EXPECT_EQ(*with_dot, *without);
    EXPECT_EQ(with_dot->toString(), text);
  }
}

TEST(Name, HoldsUpTo127Labels) {
  std::string text;
  for (int i = 0; i < 127; ++i) text += "a.";
  const Name name = parsed(text);
  EXPECT_EQ(name.size(), 255u);
  for (const char* more : {"a", "a.", "."}) EXPECT_FALSE(Name::parse(text + more).has_value());
}

TEST(Name, WritesWhatItReads) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string wire;
    while (random() % 5 != 0) {
      const size_t size = 1 + random() % 63;
      if (wire.size() + size + 2 > 255) break;
      std::string label;
      for (size_t i = 0; i < size; ++i) label += static_cast<char>(random());
      wire += test::label(label);
    }
    wire += '\0';
    const Name name = Name::fromWire(bytes(wire));
    const std::string text = name.toString();
    for (const char c : text) EXPECT_TRUE(c > 0x20 && c < 0x7f) << text;
    EXPECT_EQ(parsed(text), name) << text;
    EXPECT_EQ(parsed(text).toString(), text);
  }
}

TEST(Name, EscapesWhatZoneFilesWouldMisread) {
  EXPECT_EQ(parsed("a\\.b\\\\c.").toString(), "a\\.b\\\\c.");
  EXPECT_EQ(parsed("\\\"\\(\\)\\;\\@\\$").toString(), "\\\"\\(\\)\\;\\@\\$.");
  EXPECT_EQ(parsed("\\000\\127\\255 x").toString(), "\\000\\127\\255\\032x.");
  EXPECT_EQ(parsed("_dns-sd*._udp.").toString(), "_dns-sd*._udp.");
}

TEST(Name, ParentDropsTheFirstLabel) {
  const Name name = parsed("a.bc.def.");
  EXPECT_EQ(name.parent(), parsed("bc.def."));
  EXPECT_EQ(name.parent().parent(), parsed("def."));
  EXPECT_TRUE(name.parent().parent().parent().isRoot());
}

TEST(Name, IsWithinAtLabelBorders) {
  const Name zone = parsed("tf.local.");
  EXPECT_TRUE(zone.isWithin(zone));
  EXPECT_TRUE(parsed("worker1.tf.local.").isWithin(zone));
  EXPECT_TRUE(parsed("a.b.c.TF.local.").isWithin(zone));
  EXPECT_FALSE(parsed("xtf.local.").isWithin(zone));
  EXPECT_FALSE(parsed("local.").isWithin(zone));
  EXPECT_FALSE(parsed("tf.local.x.").isWithin(zone));
  EXPECT_FALSE(parsed("tf\\.local.").isWithin(zone));
  EXPECT_FALSE(Name().isWithin(zone));
  EXPECT_TRUE(zone.isWithin(Name()));
  EXPECT_TRUE(Name().isWithin(Name()));
}

TEST(Name, IsWithinIsNotFooledByAWireTailInsideALabel) {
  // The label "x\002tf\005local" ends with the very bytes of tf.local.
  const std::string wire = test::label("x" + wireName("tf.local.").substr(0, 9)) + '\0';
  const Name name = Name::fromWire(bytes(wire));
  ASSERT_EQ(test::text(name.wire().last(10)), wireName("tf.local."));
  EXPECT_FALSE(name.isWithin(parsed("tf.local.")));
}

TEST(Name, EqualityIsByAllBytes) {
  EXPECT_FALSE(parsed("a.b.") == parsed("a\\.b."));
  EXPECT_FALSE(parsed("a.") == parsed("b."));
  EXPECT_FALSE(parsed("a.") == Name());
}

}  // namespace
}  // namespace idetcd::dns
