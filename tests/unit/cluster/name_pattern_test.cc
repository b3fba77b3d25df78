#include "cluster/name_pattern.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace idetcd::cluster {
namespace {

// The name of `id`, or the error.
std::string render(std::string_view text, int64_t id = 1, int64_t limit = 10) {
  const Result<NamePattern> pattern = NamePattern::parse(text, limit);
  return pattern ? pattern->render(id) : pattern.error().message;
}

std::string errorOf(std::string_view text, int64_t limit = 10) {
  const Result<NamePattern> pattern = NamePattern::parse(text, limit);
  return pattern ? "no error, " + pattern->render(1) : pattern.error().message;
}

TEST(NamePattern, Renders) {
  const struct {
    std::string_view text;
    int64_t id;
    std::string_view name;
  } cases[] = {
      {"worker{{.ID}}.tf.local.", 1, "worker1.tf.local."},
      {"worker{{.ID}}.tf.local.", 10, "worker10.tf.local."},
      {"worker{{ .ID }}.tf.local", 7, "worker7.tf.local."},
      {"worker{{\t.ID\n}}.tf.local", 7, "worker7.tf.local."},
      {"{{.ID}}", 3, "3."},
      {"Worker{{.ID}}.TF.Local.", 3, "worker3.tf.local."},
      {"a_b-{{.ID}}-c.", 3, "a_b-3-c."},
      {"n{{.ID}}.r{{.ID}}.x", 2, "n2.r2.x."},
      // Formats.
      {"n{{printf \"%03d\" .ID}}.x", 7, "n007.x."},
      {"n{{printf \"%d\" .ID}}.x", 7, "n7.x."},
      {"n{{printf \"%v\" .ID}}.x", 7, "n7.x."},
      {"n{{printf \"%+v\" .ID}}.x", 7, "n7.x."},
      {"n{{printf \"%x\" .ID}}.x", 10, "na.x."},
      {"n{{printf \"%#x\" .ID}}.x", 10, "n0xa.x."},
      {"n{{printf \"%02X\" .ID}}.x", 10, "n0a.x."},
      {"n{{printf \"%04b\" .ID}}.x", 10, "n1010.x."},
      {"n{{printf \"%#b\" .ID}}.x", 2, "n0b10.x."},
      {"n{{printf \"%o\" .ID}}.x", 10, "n12.x."},
      {"n{{printf \"%#o\" .ID}}.x", 10, "n012.x."},
      {"n{{printf \"%O\" .ID}}.x", 10, "n0o12.x."},
      {"n{{printf \"%.3d\" .ID}}.x", 7, "n007.x."},
      {"n{{printf \"%3.3d\" .ID}}.x", 7, "n007.x."},
      {"n{{printf \"%#05x\" .ID}}.x", 10, "n0x0000a.x."},
      {"n{{printf \"%0*d\" 4 .ID}}.x", 7, "n0007.x."},
      {"n{{printf \"%0[2]*[1]d\" .ID 4}}.x", 7, "n0007.x."},
      {"n{{printf \"%.*d\" 3 .ID}}.x", 7, "n007.x."},
      {"n{{printf \"%[1]d-%[1]x\" .ID}}.x", 10, "n10-a.x."},
      {"n{{printf \"%d%c\" .ID 'z'}}.x", 7, "n7z.x."},
      {"n{{printf \"%c%d\" 97 .ID}}.x", 7, "na7.x."},
      {"{{printf \"%s%d\" \"node\" .ID}}.x", 7, "node7.x."},
      {"{{printf \"%s%d\" `node` .ID}}.x", 7, "node7.x."},
      {"{{printf \"%.2s%d\" \"node\" .ID}}.x", 7, "no7.x."},
      {"{{printf \"%04s-%d\" \"ab\" .ID}}.x", 7, "00ab-7.x."},
      {"{{printf \"%x-%d\" \"ab\" .ID}}.x", 7, "6162-7.x."},
      {"{{printf \"%d.%s\" .ID \"zone\"}}.x", 7, "7.zone.x."},
      // print, pipelines, parentheses.
      {"n{{print .ID}}.x", 7, "n7.x."},
      {"{{print \"n\" .ID \"-\" 5}}.x", 7, "n7-5.x."},
      {"n{{.ID | printf \"%03d\"}}.x", 7, "n007.x."},
      {"n{{.ID|printf \"%03d\"|printf \"%s-%s\" \"a\"}}.x", 7, "na-007.x."},
      {"n{{print .ID | print \"a\"}}.x", 7, "na7.x."},
      {"n{{(.ID)}}.x", 7, "n7.x."},
      {"n{{printf \"%s-%d\" (printf \"%02d\" .ID) (.ID)}}.x", 7, "n07-7.x."},
      {"n{{((print (.ID)))}}.x", 7, "n7.x."},
      // Constants.
      {"n{{5}}{{\"a\"}}{{`b`}}{{'c'}}-{{.ID}}.x", 7, "n5ab99-7.x."},
      {"n{{0x1f}}-{{0b11}}-{{0o17}}-{{017}}-{{1_000}}-{{-3}}-{{+4}}-{{.ID}}.x", 7, "n31-3-15-15-1000--3-4-7.x."},
      {"n{{\"\\x61\\142\\u0063\"}}{{.ID}}.x", 7, "nabc7.x."},
      {"n{{printf \"%c\" '\\x61'}}{{.ID}}.x", 7, "na7.x."},
      {"n{{\"}}\" | printf \"%.0s\"}}{{.ID}}.x", 7, "n7.x."},
      // Comments and trim markers.
      {"n{{/* a comment */}}{{.ID}}.x", 7, "n7.x."},
      {"n{{/* }} */}}{{.ID}}.x", 7, "n7.x."},
      {"n {{- /* gone */ -}} {{.ID}}.x", 7, "n7.x."},
      {"n \t{{- .ID -}} \n .x", 7, "n7.x."},
      {"n{{- 3 -}}-{{.ID}}.x", 7, "n3-7.x."},
      {"n{{-3}}-{{.ID}}.x", 7, "n-3-7.x."},
  };
  for (const auto& each : cases) EXPECT_EQ(render(each.text, each.id), each.name) << each.text;
}

TEST(NamePattern, RefusesWhatGoRefuses) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"n{{.ID", "pattern: {{.ID is not closed"},
      {"n{{.ID}.x", "pattern: unexpected '}' in {{.ID}.x"},
      {"n{{", "pattern: {{ is not closed"},
      {"n{{}}{{.ID}}", "pattern: a value is missing in {{}}"},
      {"n{{ | print}}{{.ID}}", "pattern: a value is missing in {{ | print}}"},
      {"n{{.ID | }}", "pattern: a value is missing in {{.ID | }}"},
      {"n{{()}}", "pattern: a value is missing in {{()}}"},
      {"n{{(.ID}}", "pattern: unexpected '}' in {{(.ID}}"},
      {"n{{.ID)}}", "pattern: unexpected ')' in {{.ID)}}"},
      {"n{{.ID-}}", "pattern: unexpected '-' in {{.ID-}}"},
      {"n{{.ID 5}}", "pattern: only a function takes arguments: {{.ID 5}}"},
      {"n{{.ID | .ID}}", "pattern: only a function takes arguments: {{.ID | .ID}}"},
      {"n{{\"a\" .ID}}", "pattern: only a function takes arguments: {{\"a\" .ID}}"},
      {"n{{printf\"%d\" .ID}}", "pattern: unexpected '\"' in {{printf\"%d\" .ID}}"},
      {"n{{print(.ID)}}", "pattern: unexpected '(' in {{print(.ID)}}"},
      {"n{{printf}}{{.ID}}", "pattern: printf needs a format: {{printf}}"},
      {"n{{printf 5 .ID}}", "pattern: the format of printf must be a string: {{printf 5 .ID}}"},
      {"n{{printf (print .ID)}}", "pattern: the format of printf must not depend on .ID: {{printf (print .ID)}}"},
      {"n{{.ID | printf}}", "pattern: the format of printf must not depend on .ID: {{.ID | printf}}"},
      {"n{{\"a}}{{.ID}}", "pattern: a \" quote is not closed"},
      {"n{{\"a\n\"}}{{.ID}}", "pattern: a \" quote is not closed"},
      {"n{{`a}}{{.ID}}", "pattern: a ` quote is not closed"},
      {"n{{\"\\z\"}}{{.ID}}", "pattern: unknown escape \\z in {{\"\\z\"}}"},
      {"n{{\"\\x6\"}}{{.ID}}", "pattern: bad escape in {{\"\\x6\"}}"},
      {"n{{\"\\400\"}}{{.ID}}", "pattern: bad escape in {{\"\\400\"}}"},
      {"n{{'ab'}}{{.ID}}", "pattern: a character constant has one ASCII character: {{'ab'}}"},
      {"n{{''}}{{.ID}}", "pattern: a character constant has one ASCII character: {{''}}"},
      {"n{{/* a{{.ID}}", "pattern: a comment is not closed"},
      {"n{{/* a */ }}{{.ID}}", "pattern: a comment must end at the closing braces: */}}"},
      {"n{{/* a */ .ID}}", "pattern: a comment must end at the closing braces: */}}"},
      {"n{{ /* a */}}{{.ID}}", "pattern: unexpected '/' in {{ /* a */}}"},
      {"n{{9223372036854775808}}{{.ID}}",
       "pattern: '9223372036854775808' is not a whole number, and others are not supported"},
      {"n{{089}}{{.ID}}", "pattern: '089' is not a whole number, and others are not supported"},
  };
  for (const auto& each : cases) EXPECT_EQ(errorOf(each.text), each.error) << each.text;
  EXPECT_EQ(errorOf("n{{" + std::string(20, '(') + ".ID" + std::string(20, ')') + "}}"),
            "pattern: parentheses deeper than 16");
}

TEST(NamePattern, NamesWhatItDoesNotSupport) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"n{{if .ID}}a{{end}}", "pattern: 'if' is not supported: {{if .ID}}"},
      {"n{{range .ID}}a{{end}}", "pattern: 'range' is not supported: {{range .ID}}"},
      {"n{{with .ID}}{{.}}{{end}}", "pattern: 'with' is not supported: {{with .ID}}"},
      {"n{{template \"x\"}}{{.ID}}", "pattern: 'template' is not supported: {{template \"x\"}}"},
      {"n{{true}}{{.ID}}", "pattern: 'true' is not supported: {{true}}"},
      {"n{{$x := .ID}}{{$x}}", "pattern: variables are not supported: {{$x := .ID}}"},
      {"n{{$}}", "pattern: variables are not supported: {{$}}"},
      {"n{{.}}", "pattern: . is not supported, only .ID is: {{.}}"},
      {"n{{.Id}}", "pattern: .Id is not supported, only .ID is: {{.Id}}"},
      {"n{{.Name}}", "pattern: .Name is not supported, only .ID is: {{.Name}}"},
      {"n{{.ID.Foo}}", "pattern: .ID.Foo is not supported, only .ID is: {{.ID.Foo}}"},
      {"n{{(.ID).Foo}}", "pattern: a field of a parenthesis is not supported: {{(.ID).Foo}}"},
      {"n{{ID}}", "pattern: the function 'ID' does not exist, only print, printf and println are: {{ID}}"},
      {"n{{add .ID 1}}",
       "pattern: the function 'add' does not exist, only print, printf and println are: {{add .ID 1}}"},
      {"n{{len .ID}}", "pattern: the function 'len' is not supported, only print, printf and println are: {{len .ID}}"},
      {"n{{print len .ID}}",
       "pattern: the function 'len' is not supported, only print, printf and println are: {{print len .ID}}"},
      {"n{{1.5}}{{.ID}}", "pattern: '1.5' is not a whole number, and others are not supported"},
      {"n{{1e3}}{{.ID}}", "pattern: '1e3' is not a whole number, and others are not supported"},
  };
  for (const auto& each : cases) EXPECT_EQ(errorOf(each.text), each.error) << each.text;
}

TEST(NamePattern, MistakesInFormats) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"n{{printf \"%s\" .ID}}", "printf: %s wants a string and not a number, use %d"},
      {"n{{printf \"%d%d\" .ID \"x\"}}", "printf: %d wants a number and not a string, use %s"},
      {"n{{printf \"%03d\" (print .ID)}}", "printf: %d wants a number and not a string, use %s"},
      {"n{{printf \"%d\"}}{{.ID}}", "printf: too few arguments for \"%d\""},
      {"n{{printf \"%d%d\" .ID}}", "printf: too few arguments for \"%d%d\""},
      {"n{{printf \"x\" .ID}}", "printf: 1 arguments, but \"x\" uses 0"},
      {"n{{printf \"%d\" .ID 5}}", "printf: 2 arguments, but \"%d\" uses 1"},
      {"n{{printf \"%\" .ID}}", "printf: \"%\" ends without a verb"},
      {"n{{printf \"%d%03\" .ID}}", "printf: \"%d%03\" ends without a verb"},
      {"n{{printf \"%t\" .ID}}", "printf: the verb %t is not supported"},
      {"n{{printf \"%e\" .ID}}", "printf: the verb %e is not supported"},
      {"n{{printf \"%T\" .ID}}", "printf: the verb %T is not supported"},
      {"n{{printf \"%!\" .ID}}", "printf: the verb %! is not supported"},
      {"n{{printf \"%[2]d\" .ID}}", "printf: bad argument index in \"%[2]d\""},
      {"n{{printf \"%[0]d\" .ID}}", "printf: bad argument index in \"%[0]d\""},
      {"n{{printf \"%[x]d\" .ID}}", "printf: bad argument index in \"%[x]d\""},
      {"n{{printf \"%[1d\" .ID}}", "printf: bad argument index in \"%[1d\""},
      {"n{{printf \"%[99999999999999999999]d\" .ID}}", "printf: bad argument index in \"%[99999999999999999999]d\""},
      {"n{{printf \"%256d\" .ID}}", "printf: a width or precision in \"%256d\" is more than 255"},
      {"n{{printf \"%099999999999d\" .ID}}", "printf: a width or precision in \"%099999999999d\" is more than 255"},
      {"n{{printf \"%.1000d\" .ID}}", "printf: a width or precision in \"%.1000d\" is more than 255"},
      {"n{{printf \"%*d\" 1000 .ID}}", "printf: a width or precision in \"%*d\" is more than 255"},
      {"n{{printf \"%*d\" \"a\" .ID}}", "printf: * wants a number and not a string"},
  };
  for (const auto& each : cases) EXPECT_EQ(errorOf(each.text), each.error) << each.text;
}

TEST(NamePattern, NamesAreHostNames) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"", "the pattern is empty"},
      {"worker.tf.local.", "the pattern does not use {{.ID}}, so all nodes would have the same name"},
      {"worker{.ID}.tf.local.", "the pattern does not use {{.ID}}, so all nodes would have the same name"},
      {"worker{{5}}.tf.local.", "the pattern does not use {{.ID}}, so all nodes would have the same name"},
      {"worker{{/* .ID */}}.tf.local.", "the pattern does not use {{.ID}}, so all nodes would have the same name"},
      {"worker{{\".ID\"}}.tf.local.", "the pattern does not use {{.ID}}, so all nodes would have the same name"},
      {"n{{.ID}}..x", "the name of ID 1, \"n1..x.\", has an empty label"},
      {".n{{.ID}}.x", "the name of ID 1, \".n1.x.\", has an empty label"},
      {"n{{.ID}}.x..", "the name of ID 1, \"n1.x..\", has an empty label"},
      {"n {{.ID}}.x",
       "the name of ID 1, \"n 1.x.\", has ' ', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n{{printf \"%3d\" .ID}}.x",
       "the name of ID 1, \"n  1.x.\", has ' ', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n{{printf \"%-3d\" .ID}}.x",
       "the name of ID 1, \"n1  .x.\", has ' ', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n{{printf \"%+d\" .ID}}.x",
       "the name of ID 1, \"n+1.x.\", has '+', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n{{printf \"%q\" .ID}}.x",
       "the name of ID 1, \"n'\\x01'.x.\", has ''', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n{{printf \"%c\" .ID}}.x",
       "the name of ID 1, \"n\\x01.x.\", has '\\x01', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n{{println .ID}}.x",
       "the name of ID 1, \"n1\\x0a.x.\", has '\\x0a', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n{{print .ID 5}}.x",
       "the name of ID 1, \"n1 5.x.\", has ' ', but a host name has only letters, digits, '-', '_' and '.'"},
      {"/n{{.ID}}.x",
       "the name of ID 1, \"/n1.x.\", has '/', but a host name has only letters, digits, '-', '_' and '.'"},
      {"*.n{{.ID}}.x",
       "the name of ID 1, \"*.n1.x.\", has '*', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n\\.{{.ID}}.x",
       "the name of ID 1, \"n\\.1.x.\", has '\\', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n\u00e9{{.ID}}.x",
       "the name of ID 1, \"n\\xc3\\xa91.x.\", has '\\xc3', but a host name has only letters, digits, '-', '_' and "
       "'.'"},
      {"-n{{.ID}}.x", "the name of ID 1, \"-n1.x.\", begins with '-'"},
      {"{{printf \"%.0s\" (print .ID)}}", "the name of ID 1 is empty"},
      {"n{{printf \"%.0s\" (print .ID)}}.x", "IDs 1 and 2 have the same name, \"n.x.\""},
      {"n{{printf \"%.1s\" (print .ID)}}.x", "IDs 1 and 10 have the same name, \"n1.x.\""},
      {"n{{.ID}}}.x",
       "the name of ID 1, \"n1}.x.\", has '}', but a host name has only letters, digits, '-', '_' and '.'"},
  };
  for (const auto& each : cases) EXPECT_EQ(errorOf(each.text), each.error) << each.text;
  EXPECT_EQ(errorOf(std::string(1025, 'x')), "the pattern is longer than 1024 octets");
}

TEST(NamePattern, HyphensInsideAreAllowed) {
  EXPECT_EQ(render("n-{{.ID}}.-x-.y-"), "n-1.-x-.y-.");
  EXPECT_EQ(render("_n{{.ID}}"), "_n1.");
}

TEST(NamePattern, LengthsHoldForEveryIdUpToTheLimit) {
  const std::string label62(62, 'a');
  EXPECT_EQ(render(label62 + "{{.ID}}", 9, 9), label62 + "9.");
  EXPECT_EQ(errorOf(label62 + "{{.ID}}", 10),
            "the name of ID 10, \"" + label62 + "10.\", has a label of 64 octets, more than 63");
  EXPECT_EQ(errorOf(std::string(64, 'a') + ".n{{.ID}}"),
            "the name of ID 1, \"" + std::string(64, 'a') + ".n1.\", has a label of 64 octets, more than 63");
  EXPECT_EQ(errorOf("n{{printf \"%064d\" .ID}}").substr(0, 20), "the name of ID 1, \"n");

  // 3 × 64 + 61 octets, the length octet of the first label and the root: 255 with ID 9, one more with ID 10.
  const std::string label63(63, 'b');
  const std::string longest = std::string(60, 'a') + "{{.ID}}." + label63 + "." + label63 + "." + label63 + ".";
  EXPECT_EQ(render(longest, 9, 9).size(), 254u);
  EXPECT_TRUE(errorOf(longest, 10).ends_with("has 256 octets, more than 255")) << errorOf(longest, 10);
  EXPECT_TRUE(errorOf(longest, 10).starts_with("the name of ID 10, ")) << errorOf(longest, 10);

  // Found far beyond the IDs that are checked one by one.
  EXPECT_EQ(render(std::string(54, 'a') + "{{.ID}}", 1, 999'999'999).size(), 56u);
  EXPECT_TRUE(
      errorOf(std::string(54, 'a') + "{{.ID}}", 1'000'000'000).ends_with("has a label of 64 octets, more than 63"));
  const std::string binary = std::string(37, 'a') + "{{printf \"%b\" .ID}}";
  EXPECT_TRUE(errorOf(binary, (1 << 26) - 1).starts_with("no error"));
  EXPECT_TRUE(errorOf(binary, 1 << 26).ends_with("has a label of 64 octets, more than 63"));
  EXPECT_TRUE(errorOf("n{{printf \"%.6s\" (print .ID)}}", 10'000'000).starts_with("IDs "));
}

TEST(NamePattern, Limits) {
  EXPECT_EQ(errorOf("n{{.ID}}", 0), "the limit must be at least 1 and is 0");
  EXPECT_EQ(errorOf("n{{.ID}}", -5), "the limit must be at least 1 and is -5");
  EXPECT_EQ(render("n{{.ID}}", 1, 1), "n1.");
  EXPECT_EQ(render("n{{printf \"%.0s\" (print .ID)}}", 1, 1), "n.");  // one name is distinct
  const int64_t greatest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(render("n{{.ID}}", greatest, greatest), "n9223372036854775807.");
}

TEST(NamePattern, Zone) {
  const struct {
    std::string_view text;
    std::string_view zone;
  } cases[] = {
      {"worker{{.ID}}.tf.local.", "tf.local."},
      {"worker{{.ID}}.TF.Local", "tf.local."},
      {"worker{{.ID}}-x.tf.local.", "tf.local."},
      {"n.{{.ID}}.tf.local.", "tf.local."},
      {"a{{.ID}}.b.c{{.ID}}.tf.local.", "tf.local."},
      {"{{.ID}}.{{\"tf\"}}.local.", "tf.local."},  // does not depend on the ID
      {"{{.ID}}{{\".tf\"}}.local.", "tf.local."},
      {"{{print .ID \".tf\"}}.local.", "local."},
      {"{{print .ID \".\"}}tf.local.", "tf.local."},  // "tf" is a label of its own
      {"worker{{.ID}}", "."},
      {"worker{{.ID}}.", "."},
      {"{{print \"w\" .ID \".\"}}", "."},
      {"tf.local.{{.ID}}", "."},
      {"tf.{{.ID}}.", "."},
      {"worker{{.ID}} {{- /* c */ -}} .tf.local.", "tf.local."},
  };
  for (const auto& each : cases) {
    const Result<NamePattern> pattern = NamePattern::parse(each.text, 10);
    ASSERT_TRUE(pattern) << each.text << ": " << pattern.error().message;
    EXPECT_EQ(pattern->zone().toString(), each.zone) << each.text;
  }
}

TEST(NamePattern, LiteralPrefixAndText) {
  const struct {
    std::string_view text;
    std::string_view prefix;
  } cases[] = {
      {"Worker{{.ID}}.tf.local.", "worker"},
      {"{{.ID}}.tf", ""},
      {"a.b{{/* c */}}c{{\"D\"}}{{.ID}}.tf", "a.bcd"},
      {"a {{- .ID}}.tf", "a"},
  };
  for (const auto& each : cases) {
    const Result<NamePattern> pattern = NamePattern::parse(each.text, 10);
    ASSERT_TRUE(pattern) << each.text << ": " << pattern.error().message;
    EXPECT_EQ(pattern->literalPrefix(), each.prefix);
    EXPECT_EQ(pattern->text(), each.text);
    EXPECT_TRUE(pattern->render(10).starts_with(each.prefix));
  }
}

TEST(NamePattern, CopiesShareOneTemplate) {
  NamePattern copy;
  {
    const Result<NamePattern> pattern = NamePattern::parse("n{{.ID}}.x", 10);
    ASSERT_TRUE(pattern);
    copy = *pattern;
  }
  EXPECT_EQ(copy.render(4), "n4.x.");
}

TEST(NamePattern, IsFast) {
  const auto start = std::chrono::steady_clock::now();
  const Result<NamePattern> pattern = NamePattern::parse("worker{{printf \"%09d\" .ID}}.tf.local.", 1'000'000'000);
  ASSERT_TRUE(pattern);
  size_t total = 0;
  for (int64_t id = 1; id <= 100'000; ++id) total += pattern->render(id).size();
  EXPECT_EQ(total, 100'000u * 25);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", static_cast<int>(elapsed / std::chrono::milliseconds(1)));
  EXPECT_LT(elapsed, std::chrono::seconds(5));  // far above what it takes, for sanitizers on a busy machine
}

// Whatever is cut off or put in: a value comes back.
TEST(NamePattern, EveryPrefixAndEveryMutationIsSurvived) {
  const std::string text = "n{{- (printf \"%0[2]*[1]d\\x41\" .ID 4) | print `a` 'b' -}} {{/* c */}}-{{.ID}}.tf.local.";
  for (size_t i = 0; i < text.size(); ++i) {
    errorOf(text.substr(0, i));
    for (const char c :
         {'{', '}', '"', '\'', '`', '\\', '%', '*', '[', '.', '-', ' ', '|', '(', ')', '9', '\0', '\xff'}) {
      std::string mutated = text;
      mutated[i] = c;
      errorOf(mutated);
    }
  }
}

}  // namespace
}  // namespace idetcd::cluster
