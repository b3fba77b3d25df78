#include "cli/arguments.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::cli {
namespace {

using namespace std::chrono_literals;
using Kind = Option::Kind;

const Grammar kGrammar{.options = {{"json", Kind::kFlag, "", ""},
                                   {"members", Kind::kCount, "N", ""},
                                   {"port", Kind::kPort, "PORT", ""},
                                   {"timeout", Kind::kDuration, "DURATION", ""},
                                   {"pattern", Kind::kText, "PATTERN", ""}},
                       .max_words = 1};

Arguments accepted(const std::vector<const char*>& given, const Grammar& grammar = kGrammar) {
  auto parsed = Arguments::parse(grammar, given);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return parsed.value_or(Arguments{});
}

std::string refused(const std::vector<const char*>& given, const Grammar& grammar = kGrammar) {
  const auto parsed = Arguments::parse(grammar, given);
  return parsed ? "accepted" : parsed.error().message;
}

TEST(Arguments, BothSpellings) {
  for (const auto& given : std::vector<std::vector<const char*>>{
           {"--members", "3", "--timeout=1m30s", "--pattern", "--json", "word", "--json", "--port=2222"},
           {"word", "-members=3", "--pattern=--json", "--timeout", "90", "--json", "--port", "2222"}}) {
    const Arguments arguments = accepted(given);
    EXPECT_EQ(arguments.number("members"), 3u);
    EXPECT_EQ(arguments.number("port"), 2222u);
    EXPECT_EQ(arguments.duration("timeout"), 90s);
    EXPECT_EQ(arguments.text("pattern"), "--json");
    EXPECT_TRUE(arguments.has("json"));
    EXPECT_EQ(arguments.words(), std::vector<std::string>{"word"});
  }
}

TEST(Arguments, NothingIsGiven) {
  const Arguments arguments = accepted({});
  EXPECT_FALSE(arguments.has("json"));
  EXPECT_EQ(arguments.number("members"), std::nullopt);
  EXPECT_EQ(arguments.duration("timeout"), std::nullopt);
  EXPECT_TRUE(arguments.words().empty());
}

TEST(Arguments, TheLastOfTwoCounts) { EXPECT_EQ(accepted({"--members=3", "--members=4"}).number("members"), 4u); }

TEST(Arguments, WhatIsWrong) {
  EXPECT_EQ(refused({"--frob"}), "there is no option --frob");
  EXPECT_EQ(refused({"--members"}), "--members needs a value: N");
  EXPECT_EQ(refused({"--json=yes"}), "--json takes no value");
  for (const char* count :
       {"--members=0", "--members=-1", "--members=x", "--members=", "--members=1.5", "--members=99999999999999999999"})
    EXPECT_NE(refused({count}).find("whole number"), std::string::npos) << count;
  for (const char* port : {"--port=0", "--port=65536", "--port=http"})
    EXPECT_NE(refused({port}).find("must be a port"), std::string::npos) << port;
  for (const char* timeout : {"--timeout=soon", "--timeout=-1s", "--timeout="})
    EXPECT_NE(refused({timeout}).find("must be a duration"), std::string::npos) << timeout;
  EXPECT_EQ(refused({"--pattern="}), "--pattern : must not be empty");
  EXPECT_EQ(refused({"a", "b"}), "one word too many: b");
  EXPECT_EQ(refused({"--\x1b[2J"}), "there is no option --\\x1b[2J");
  EXPECT_EQ(refused({}, {.options = {}, .min_words = 1, .max_words = 1}), "a word is missing");
}

TEST(Arguments, TheCommandOfAnotherProgramIsItsOwn) {
  const Grammar grammar{.options = kGrammar.options, .min_words = 1, .has_command = true};
  using Words = std::vector<std::string>;
  EXPECT_EQ(accepted({"--json", "--", "ls", "--json", "--", "-l"}, grammar).words(),
            (Words{"ls", "--json", "--", "-l"}));
  EXPECT_EQ(accepted({"ls", "--members", "x"}, grammar).words(), (Words{"ls", "--members", "x"}));
  EXPECT_EQ(accepted({"--", "--members"}, grammar).words(), Words{"--members"});
  EXPECT_EQ(refused({"--members=2", "--"}, grammar), "a word is missing");
}

}  // namespace
}  // namespace idetcd::cli
