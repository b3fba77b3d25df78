#include "config/directive_cursor.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config/corefile.h"
#include "fake_environment.h"

namespace idetcd::config {
namespace {

// The first directive of a block with this body; it begins in line 2.
Directive directive(const std::string& body) {
  const FakeEnvironment environment;
  const Result<Corefile> parsed = parseCorefile("C", ". {\n" + body + "\n}\n", {}, environment);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed ? parsed->blocks.at(0).directives.at(0) : Directive{};
}

using Words = std::vector<std::string>;

// Reads everything as "property arg arg;" and says what finish() says.
std::string readAll(const std::string& body) {
  const Directive read = directive(body);
  DirectiveCursor cursor(read);
  std::string shown = cursor.value();
  while (cursor.nextArg()) shown += " " + cursor.value();
  while (cursor.nextBlock()) {
    shown += ";" + cursor.value();
    for (const std::string& arg : cursor.remainingArgs()) shown += " " + arg;
  }
  const Result<void> finished = cursor.finish();
  return finished ? shown : finished.error().message;
}

TEST(DirectiveCursor, ReadsArgumentsAndBlocks) {
  EXPECT_EQ(readAll("log"), "log");
  EXPECT_EQ(readAll("log a b"), "log a b");
  EXPECT_EQ(readAll("log a {\n}"), "log a");
  EXPECT_EQ(readAll("log a { }"), "log a");
  EXPECT_EQ(readAll("log a {\n class x y\n\n class \"z z\"\n}"), "log a;class x y;class z z");
  EXPECT_EQ(readAll("log { class x }"), "log;class x");
  EXPECT_EQ(readAll("log { class x\n class y }"), "log;class x;class y");
  EXPECT_EQ(readAll("log \"{\" \"}\""), "log { }");
}

TEST(DirectiveCursor, ArgumentCounts) {
  const Directive two = directive("limit 5 6");
  EXPECT_EQ(DirectiveCursor(two).args(2).value(), (Words{"5", "6"}));
  EXPECT_EQ(DirectiveCursor(two).args(0, 2).value(), (Words{"5", "6"}));
  EXPECT_EQ(DirectiveCursor(two).oneArg().error().message,
            "C:2 - Error during parsing: Wrong argument count or unexpected line ending after '6'");
  EXPECT_EQ(DirectiveCursor(two).args(3).error().message,
            "C:2 - Error during parsing: Wrong argument count or unexpected line ending after '6'");
  const Directive none = directive("limit");
  EXPECT_EQ(DirectiveCursor(none).args(0).value(), Words{});
  EXPECT_EQ(DirectiveCursor(none).oneArg().error().message,
            "C:2 - Error during parsing: Wrong argument count or unexpected line ending after 'limit'");
  const Directive one = directive("limit 5 {\n}");
  EXPECT_EQ(DirectiveCursor(one).oneArg().value(), "5");
}

TEST(DirectiveCursor, ErrorsNameTheLineOfTheCurrentToken) {
  const Directive read = directive("idetcd {\n\n  limit\n pattern x\n}");
  DirectiveCursor cursor(read);
  EXPECT_EQ(cursor.error("x").value().message, "C:2 - Error during parsing: x");
  ASSERT_TRUE(cursor.nextBlock());
  EXPECT_EQ(cursor.oneArg().error().message,
            "C:4 - Error during parsing: Wrong argument count or unexpected line ending after 'limit'");
  ASSERT_TRUE(cursor.nextBlock());
  EXPECT_EQ(cursor.line(), 5);
  EXPECT_EQ(cursor.error("unknown property 'pattern'").value().message,
            "C:5 - Error during parsing: unknown property 'pattern'");
}

TEST(DirectiveCursor, LeftoversAreErrorsThatStick) {
  {
    const Directive read = directive("idetcd {\n limit 5 6\n pattern x\n}");
    DirectiveCursor cursor(read);
    ASSERT_TRUE(cursor.nextBlock());
    ASSERT_TRUE(cursor.nextArg());
    EXPECT_FALSE(cursor.nextBlock());
    EXPECT_FALSE(cursor.nextArg());
    EXPECT_FALSE(cursor.nextBlock());
    EXPECT_EQ(cursor.finish().error().message,
              "C:3 - Error during parsing: Wrong argument count or unexpected line ending after '6'");
  }
  {
    const Directive read = directive("whoami x");
    EXPECT_EQ(DirectiveCursor(read).finish().error().message,
              "C:2 - Error during parsing: Wrong argument count or unexpected line ending after 'x'");
  }
  {
    const Directive read = directive("whoami {\n}");
    EXPECT_EQ(DirectiveCursor(read).finish().error().message,
              "C:2 - Error during parsing: Unexpected token '{', expecting argument");
  }
  {
    const Directive read = directive("whoami");
    EXPECT_TRUE(DirectiveCursor(read).finish());
  }
}

TEST(DirectiveCursor, NestedBracesNeverRunAway) {
  const Directive read = directive("a {\n b {\n c\n }\n d\n}");
  DirectiveCursor cursor(read);
  Words seen;
  while (cursor.nextBlock()) seen.push_back(cursor.value());
  EXPECT_EQ(seen, (Words{"b", "{", "c"}));
  EXPECT_FALSE(cursor.finish());
}

TEST(DirectiveCursor, RemainingText) {
  const Directive single = directive(R"(pattern "worker{{printf \"%03d\" .ID}}.tf.local.")");
  EXPECT_EQ(DirectiveCursor(single).remainingText(), R"(worker{{printf "%03d" .ID}}.tf.local.)");

  const Directive read = directive(R"(pattern worker{{ printf "%03d" .ID }}.tf.local.)");
  EXPECT_EQ(DirectiveCursor(read).remainingText(), R"(worker{{ printf "%03d" .ID }}.tf.local.)");
  const Directive quoted = directive(R"(pattern "a\"b" c)");
  EXPECT_EQ(DirectiveCursor(quoted).remainingText(), R"("a\"b" c)");
  const Directive none = directive("pattern");
  EXPECT_EQ(DirectiveCursor(none).remainingText(), "");
}

TEST(DirectiveCursor, AZoneThatSeveralSchemesServeIsOne) {
  std::vector<ServerKey> keys;
  for (const char* text : {"b.", "tls://b.", "a.", "https://b.", "a.:5300"})
    keys.push_back(parseServerKey(text, 53).value().front());
  const std::vector<dns::Name> zones = zonesOf(keys);
  ASSERT_EQ(zones.size(), 2u);
  EXPECT_EQ(zones[0], keys[0].zone);
  EXPECT_EQ(zones[1], keys[2].zone);
}

}  // namespace
}  // namespace idetcd::config
