#include "slots/name_pattern.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::slots {
namespace {

constexpr int64_t kGreatest = std::numeric_limits<int64_t>::max();

NamePattern parsed(std::string_view text, int64_t limit) {
  Result<NamePattern> pattern = NamePattern::parse(text, limit);
  EXPECT_TRUE(pattern) << text << ": " << pattern.error().message;
  return pattern.value();
}

// The name of `id`, or the error.
std::string render(std::string_view text, int64_t id = 1, int64_t limit = 10) {
  const Result<NamePattern> pattern = NamePattern::parse(text, limit);
  return pattern ? pattern->render(id) : pattern.error().message;
}

std::string errorOf(std::string_view text, int64_t limit = 10) {
  const Result<NamePattern> pattern = NamePattern::parse(text, limit);
  return pattern ? "no error, " + pattern->render(1) : pattern.error().message;
}

// --- names ---

TEST(NamePattern, Renders) {
  const struct {
    std::string_view text;
    int64_t id;
    std::string_view name;
  } cases[] = {
      {"worker{{.ID}}.tf.local.", 1, "worker1.tf.local."},
      {"worker{{.ID}}.tf.local.", 10, "worker10.tf.local."},
      {"worker{{.ID}}.local.tf", 10, "worker10.local.tf."},
      {"worker{{ .ID }}.tf.local", 7, "worker7.tf.local."},
      {"worker{{\t.ID\n}}.tf.local", 7, "worker7.tf.local."},
      {"{{.ID}}", 3, "3."},
      {"Worker{{.ID}}.TF.Local.", 3, "worker3.tf.local."},
      {"a_b-{{.ID}}-c.", 3, "a_b-3-c."},
      {"_n{{.ID}}", 3, "_n3."},
      {"n{{.ID}}.r{{.ID}}.x", 2, "n2.r2.x."},
      {"{{.ID}}{{.ID}}", 10, "1010."},
      {"node1{{.ID}}2", 7, "node172."},
      {"n{{printf \"%03d\" .ID}}.x", 7, "n007.x."},
      {"n{{printf \"%03d\" .ID}}.x", 1234, "n1234.x."},
      {"n{{printf \"%0003d\" .ID}}.x", 7, "n007.x."},
      {"n{{printf \"%0d\" .ID}}.x", 7, "n7.x."},
      {"n{{printf \"%d\" .ID}}.x", 7, "n7.x."},
      {"n{{printf \"%x\" .ID}}.x", 26, "n1a.x."},
      {"n{{printf \"%X\" .ID}}.x", 26, "n1a.x."},
      {"n{{printf \"%04x\" .ID}}.x", 26, "n001a.x."},
      {"n{{printf \"%o\" .ID}}.x", 10, "n12.x."},
      {"n{{printf \"%05o\" .ID}}.x", 10, "n00012.x."},
      {"n{{ \t printf \r\n \"%03d\"   .ID  }}.x", 7, "n007.x."},
      {"n{{printf `%03d` .ID}}.x", 7, "n007.x."},
      {"r{{printf \"%x\" .ID}}-{{printf \"%03d\" .ID}}{{printf \"%o\" .ID}}.z", 12, "rc-01214.z."},
  };
  for (const auto& each : cases) EXPECT_EQ(render(each.text, each.id, 2000), each.name) << each.text;
}

TEST(NamePattern, Limits) {
  EXPECT_EQ(errorOf("n{{.ID}}", 0), "the limit must be at least 1 and is 0");
  EXPECT_EQ(errorOf("n{{.ID}}", -5), "the limit must be at least 1 and is -5");
  EXPECT_EQ(render("n{{.ID}}", 1, 1), "n1.");
  EXPECT_EQ(render("n{{.ID}}", kGreatest, kGreatest), "n9223372036854775807.");
  EXPECT_EQ(render("n{{printf \"%o\" .ID}}", kGreatest, kGreatest), "n777777777777777777777.");
  EXPECT_EQ(parsed("n{{.ID}}", 42).limit(), 42);
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
      {"{{.ID}}{{.ID}}9.tf", "tf."},
      {"worker{{.ID}}", "."},
      {"worker{{.ID}}.", "."},
      {"worker{{.ID}}-x", "."},
      {"tf.local.{{.ID}}", "."},
      {"tf.{{.ID}}.", "."},
  };
  for (const auto& each : cases) EXPECT_EQ(parsed(each.text, 10).zone().toString(), each.zone) << each.text;
}

TEST(NamePattern, LiteralPrefixAndText) {
  const struct {
    std::string_view text;
    std::string_view prefix;
  } cases[] = {{"Worker{{.ID}}.tf.local.", "worker"}, {"{{.ID}}.tf", ""}, {"a.b1{{.ID}}{{.ID}}.tf", "a.b1"}};
  for (const auto& each : cases) {
    const NamePattern pattern = parsed(each.text, 10);
    EXPECT_EQ(pattern.literalPrefix(), each.prefix);
    EXPECT_EQ(pattern.text(), each.text);
    EXPECT_TRUE(pattern.render(10).starts_with(each.prefix));
  }
}

TEST(NamePattern, CopiesShareWhatWasRead) {
  NamePattern copy;
  { copy = parsed("n{{.ID}}.x", 10); }
  EXPECT_EQ(copy.render(4), "n4.x.");
  EXPECT_EQ(copy.recognise("n4.x."), 4);
}

// --- the inverse ---

// A pattern, and what C's printf makes the same names of: one format for each number, text between.
struct Known {
  const char* text;
  std::vector<std::pair<const char*, const char*>> parts;  // text in front of a number, and its format
  const char* rest;
  std::string name(int64_t id) const {
    std::string made;
    for (const auto& [before, format] : parts) {
      char digits[80];
      std::snprintf(digits, sizeof digits, format, static_cast<long long>(id));
      made += std::string(before) + digits;
    }
    return made + rest;
  }
};

const std::vector<Known>& knownPatterns() {
  static const std::vector<Known> patterns = {
      {"worker{{.ID}}.tf.local.", {{"worker", "%lld"}}, ".tf.local."},
      {"{{.ID}}", {{"", "%lld"}}, "."},
      {"node1{{.ID}}", {{"node1", "%lld"}}, "."},
      {"node1{{.ID}}2.x", {{"node1", "%lld"}}, "2.x."},
      {"{{.ID}}{{.ID}}", {{"", "%lld"}, {"", "%lld"}}, "."},
      {"{{.ID}}0{{.ID}}", {{"", "%lld"}, {"0", "%lld"}}, "."},
      {"{{.ID}}{{.ID}}1{{.ID}}.9", {{"", "%lld"}, {"", "%lld"}, {"1", "%lld"}}, ".9."},
      {"n{{printf \"%03d\" .ID}}.x", {{"n", "%03lld"}}, ".x."},
      {"n{{printf \"%012d\" .ID}}.x", {{"n", "%012lld"}}, ".x."},
      {"n{{printf \"%x\" .ID}}.x", {{"n", "%llx"}}, ".x."},
      {"n{{printf \"%X\" .ID}}.x", {{"n", "%llx"}}, ".x."},
      {"n{{printf \"%o\" .ID}}.x", {{"n", "%llo"}}, ".x."},
      {"f00{{printf \"%04x\" .ID}}0f", {{"f00", "%04llx"}}, "0f."},
      {"{{printf \"%x\" .ID}}{{.ID}}", {{"", "%llx"}, {"", "%lld"}}, "."},
      {"{{.ID}}{{printf \"%x\" .ID}}", {{"", "%lld"}, {"", "%llx"}}, "."},
      {"r{{printf \"%o\" .ID}}.{{printf \"%05d\" .ID}}a{{printf \"%X\" .ID}}.z",
       {{"r", "%llo"}, {".", "%05lld"}, {"a", "%llx"}},
       ".z."},
  };
  return patterns;
}

// Where names change their length, the ends, and others by chance.
std::vector<int64_t> idsOf(int64_t limit, std::mt19937_64& random) {
  std::vector<int64_t> ids;
  for (int64_t id = 1; id <= std::min<int64_t>(limit, 1100); ++id) ids.push_back(id);
  for (const int64_t base : {2, 8, 10, 16}) {
    for (int64_t power = base; power <= limit / base; power *= base) {
      for (const int64_t id : {power - 1, power, power + 1}) ids.push_back(id);
    }
  }
  for (int i = 0; i < 500; ++i) ids.push_back(std::uniform_int_distribution<int64_t>(1, limit)(random));
  ids.push_back(std::max<int64_t>(limit - 1, 1));
  ids.push_back(limit);
  return ids;
}

constexpr int64_t kLimits[] = {
    1,        9,      10,        11,       99,          100,           255,     256,
    1000,     65'535, 1'000'000, 16777216, 999'999'999, 1'000'000'000, 1 << 30, (1u << 31) - 1,
    kGreatest};

TEST(NamePattern, ANameGivesItsIdBack) {
  std::mt19937_64 random(1);
  for (const Known& known : knownPatterns()) {
    for (const int64_t limit : kLimits) {
      const NamePattern pattern = parsed(known.text, limit);
      for (const int64_t id : idsOf(limit, random)) {
        const std::string name = pattern.render(id);
        ASSERT_EQ(name, known.name(id)) << known.text;
        ASSERT_EQ(pattern.recognise(name), id) << known.text << " up to " << limit;
      }
      if (limit == kGreatest) continue;
      for (const int64_t beyond : {limit + 1, limit + 2, 2 * limit, 10 * limit}) {
        ASSERT_EQ(pattern.recognise(known.name(beyond)), std::nullopt) << known.text << " up to " << limit;
      }
    }
  }
}

TEST(NamePattern, WhatIsRecognisedIsRenderedTheSame) {
  std::mt19937_64 random(2);
  constexpr std::string_view kCharacters = "0123456789abcdefnrxwz.-_A+ ";
  for (const Known& known : knownPatterns()) {
    const NamePattern pattern = parsed(known.text, 1'000'000'000);
    for (int i = 0; i < 3000; ++i) {
      std::string name = known.name(std::uniform_int_distribution<int64_t>(0, int64_t{1} << (random() % 34))(random));
      for (uint64_t changes = random() % 4; changes > 0; --changes) {
        const size_t at = random() % (name.size() + 1);
        const char character = kCharacters[random() % kCharacters.size()];
        switch (random() % 4) {
          case 0:
            name.insert(at, 1, character);
            break;
          case 1:
            name.erase(at, 1);
            break;
          case 2:
            name = name.substr(0, at) + name;
            break;
          default:
            if (at < name.size()) name[at] = character;
        }
      }
      const std::optional<int64_t> id = pattern.recognise(name);
      if (!id) continue;
      ASSERT_TRUE(*id >= 1 && *id <= 1'000'000'000) << name;
      ASSERT_EQ(pattern.render(*id), name) << known.text;
    }
  }
}

// Every string of some characters, against every name that there is.
TEST(NamePattern, NoOtherNameIsRecognised) {
  constexpr int64_t kLimit = 300;
  constexpr std::string_view kCharacters = "0129ac";
  constexpr size_t kLongest = 7;
  for (const Known& known : knownPatterns()) {
    const NamePattern pattern = parsed(known.text, kLimit);
    std::unordered_map<std::string, int64_t> names;
    for (int64_t id = 1; id <= kLimit; ++id) {
      ASSERT_TRUE(names.emplace(known.name(id), id).second) << known.text << ": two IDs have one name";
    }
    const std::string front = known.parts.front().first;
    const std::string back = known.rest;
    size_t found = 0;
    std::vector<std::string> level{""};
    for (size_t length = 1; length <= kLongest; ++length) {
      std::vector<std::string> next;
      next.reserve(level.size() * kCharacters.size());
      for (const std::string& middle : level) {
        for (const char c : kCharacters) next.push_back(middle + c);
      }
      level = std::move(next);
      for (const std::string& middle : level) {
        const std::string name = front + middle + back;
        const auto at = names.find(name);
        const std::optional<int64_t> expected = at == names.end() ? std::nullopt : std::optional(at->second);
        ASSERT_EQ(pattern.recognise(name), expected) << known.text << ": " << name;
        found += expected.has_value();
      }
      if (length >= 5 && known.parts.size() == 1) break;
    }
    if (known.parts.size() < 3 && std::string_view(known.text).find("12d") == std::string_view::npos) {
      EXPECT_GT(found, 0u) << known.text;
    }
  }
}

TEST(NamePattern, RecognisesNothingElse) {
  const NamePattern pattern = parsed("w{{printf \"%02x\" .ID}}.x.", 300);
  EXPECT_EQ(pattern.recognise("w0a.x."), 10);
  EXPECT_EQ(pattern.recognise("wff.x."), 255);
  EXPECT_EQ(pattern.recognise("w12c.x."), 300);
  for (const std::string_view name :
       {"",       ".",       "w",       "w.x.",    "w.",      "wa.x.",   "w0A.x.",
        "W0a.x.", "w0a.x",   "w0a.X.",  "w00.x.",  "w012.x.", "w12d.x.", "w-a.x.",
        "w+a.x.", "w0xa.x.", "w 0a.x.", "w0a.x..", "0a.x.",   "w0g.x.",  "wffffffffffffffffffffffffff.x."}) {
    EXPECT_EQ(pattern.recognise(name), std::nullopt) << name;
  }
  EXPECT_EQ(pattern.recognise(std::string(1'000'000, '1')), std::nullopt);
  // Every number has to say the same.
  const NamePattern two = parsed("{{.ID}}-{{printf \"%x\" .ID}}", 1000);
  EXPECT_EQ(two.recognise("10-a."), 10);
  EXPECT_EQ(two.recognise("10-b."), std::nullopt);
  EXPECT_EQ(two.recognise("11-a."), std::nullopt);
}

// --- host names ---

TEST(NamePattern, NamesAreHostNames) {
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {"", "the pattern is empty"},
      {"worker.tf.local.", "the pattern does not use {{.ID}}, so all nodes would have the same name"},
      {"worker{.ID}.tf.local.", "the pattern does not use {{.ID}}, so all nodes would have the same name"},
      {"n..{{.ID}}.x", "the name of ID 1, \"n..1.x.\", has an empty label"},
      {".{{.ID}}.x", "the name of ID 1, \".1.x.\", has an empty label"},
      {"{{.ID}}.x..", "the name of ID 1, \"1.x..\", has an empty label"},
      {"n {{.ID}}.x",
       "the name of ID 1, \"n 1.x.\", has ' ', but a host name has only letters, digits, '-', '_' and '.'"},
      {"/n{{.ID}}.x",
       "the name of ID 1, \"/n1.x.\", has '/', but a host name has only letters, digits, '-', '_' and '.'"},
      {"*.n{{.ID}}.x",
       "the name of ID 1, \"*.n1.x.\", has '*', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n\\.{{.ID}}.x",
       "the name of ID 1, \"n\\.1.x.\", has '\\', but a host name has only letters, digits, '-', '_' and '.'"},
      {"n\u00e9{{.ID}}.x",
       "the name of ID 1, \"n\\xc3\\xa91.x.\", has '\\xc3', but a host name has only letters, digits, '-', '_' and "
       "'.'"},
      {"n{{.ID}}}.x",
       "the name of ID 1, \"n1}.x.\", has '}', but a host name has only letters, digits, '-', '_' and '.'"},
      {"-n{{.ID}}.x", "the name of ID 1, \"-n1.x.\", has a label that begins with '-'"},
      {"n{{.ID}}-.x", "the name of ID 1, \"n1-.x.\", has a label that ends with '-'"},
      {"n{{.ID}}.-x", "the name of ID 1, \"n1.-x.\", has a label that begins with '-'"},
      {"n{{.ID}}.x-.y", "the name of ID 1, \"n1.x-.y.\", has a label that ends with '-'"},
      {"n{{.ID}}.x-", "the name of ID 1, \"n1.x-.\", has a label that ends with '-'"},
      {"n-.{{.ID}}", "the name of ID 1, \"n-.1.\", has a label that ends with '-'"},
      {"-{{.ID}}", "the name of ID 1, \"-1.\", has a label that begins with '-'"},
  };
  for (const auto& each : cases) EXPECT_EQ(errorOf(each.text), each.error) << each.text;
  EXPECT_EQ(errorOf(std::string(1025, 'x')), "the pattern is longer than 1024 bytes");
  EXPECT_EQ(render("a--b-{{.ID}}-{{.ID}}.x-y"), "a--b-1-1.x-y.");
}

TEST(NamePattern, LengthsHoldForEveryIdUpToTheLimit) {
  const std::string label62(62, 'a');
  EXPECT_EQ(render(label62 + "{{.ID}}", 9, 9), label62 + "9.");
  EXPECT_EQ(errorOf(label62 + "{{.ID}}", 10),
            "the name of ID 10, \"" + label62 + "10.\", has a label of 64 bytes, more than 63");
  EXPECT_EQ(errorOf(std::string(64, 'a') + ".n{{.ID}}"),
            "the name of ID 1, \"" + std::string(64, 'a') + ".n1.\", has a label of 64 bytes, more than 63");
  EXPECT_EQ(render("{{printf \"%063d\" .ID}}"), std::string(62, '0') + "1.");
  EXPECT_TRUE(errorOf("n{{printf \"%063d\" .ID}}").ends_with("has a label of 64 bytes, more than 63"));

  // 3 × 64 + 61 bytes, the length of the first label and the root: 255 with ID 9, one more with ID 10.
  const std::string label63(63, 'b');
  const std::string longest = std::string(60, 'a') + "{{.ID}}." + label63 + "." + label63 + "." + label63 + ".";
  EXPECT_EQ(render(longest, 9, 9).size(), 254u);
  EXPECT_TRUE(errorOf(longest, 10).ends_with("has 256 bytes, more than 255")) << errorOf(longest, 10);
  EXPECT_TRUE(errorOf(longest, 10).starts_with("the name of ID 10, ")) << errorOf(longest, 10);
}

// The last limit at which all names fit is exactly the one before the first ID whose name does not.
TEST(NamePattern, TheFirstNameThatIsTooLongIsTheOneThatIsFound) {
  const struct {
    const char* number;
    std::vector<int64_t> longer_from;  // where the number gets a digit more
  } cases[] = {
      {"{{.ID}}", {10, 100, 1000, 1'000'000, 1'000'000'000}},
      {"{{printf \"%x\" .ID}}", {16, 256, 4096, 1 << 24, 1 << 28}},
      {"{{printf \"%o\" .ID}}", {8, 64, 512, 1 << 24, 1 << 27, 1 << 30}},
      {"{{printf \"%04d\" .ID}}", {10'000, 1'000'000, 1'000'000'000}},
      {"{{printf \"%03x\" .ID}}", {4096, 1 << 24, 1 << 28}},
      {"{{.ID}}{{printf \"%x\" .ID}}", {10, 16, 100, 256, 1 << 28, 1'000'000'000}},
  };
  for (const auto& each : cases) {
    for (const int64_t first : each.longer_from) {
      const std::string number = parsed(each.number, first).render(first - 1);
      const std::string text = std::string(63 - (number.size() - 1), 'a') + each.number;
      EXPECT_TRUE(errorOf(text, first - 1).starts_with("no error")) << text << first;
      for (const int64_t limit : {first, first + 1, 10 * first, kGreatest}) {
        const std::string error = errorOf(text, limit);
        EXPECT_TRUE(error.starts_with("the name of ID " + std::to_string(first) + ", ")) << text << limit << error;
        EXPECT_TRUE(error.ends_with("has a label of 64 bytes, more than 63")) << text << limit << error;
      }
    }
  }
}

// --- what is refused ---

constexpr std::string_view kUse = R"(, use {{.ID}} or {{printf "%03d" .ID}})";

TEST(NamePattern, TheRestOfGosTemplatesIsRefusedByName) {
  const struct {
    std::string text;
    std::string error;  // and kUse
  } cases[] = {
      {"n{{if .ID}}a{{end}}", "'if' is not supported: {{if .ID}}"},
      {"n{{.ID}}{{end}}", "'end' is not supported: {{end}}"},
      {"n{{.ID}}{{else}}", "'else' is not supported: {{else}}"},
      {"n{{range .ID}}a{{end}}", "'range' is not supported: {{range .ID}}"},
      {"n{{with .ID}}{{.}}{{end}}", "'with' is not supported: {{with .ID}}"},
      {"n{{template \"x\"}}{{.ID}}", "'template' is not supported: {{template \"x\"}}"},
      {"n{{define \"x\"}}{{.ID}}", "'define' is not supported: {{define \"x\"}}"},
      {"n{{block \"x\" .}}{{.ID}}", "'block' is not supported: {{block \"x\" .}}"},
      {"n{{break}}{{.ID}}", "'break' is not supported: {{break}}"},
      {"n{{true}}{{.ID}}", "'true' is not supported: {{true}}"},
      {"n{{nil}}{{.ID}}", "'nil' is not supported: {{nil}}"},
      {"n{{$x := .ID}}{{$x}}", "a variable ('$') is not supported: {{$x := .ID}}"},
      {"n{{$}}", "a variable ('$') is not supported: {{$}}"},
      {"n{{.ID | printf \"%03d\"}}.x", "a pipeline ('|') is not supported: {{.ID | printf \"%03d\"}}"},
      {"n{{.ID|print}}.x", "a pipeline ('|') is not supported: {{.ID|print}}"},
      {"n{{printf \"%d\" .ID | print}}", "a pipeline ('|') is not supported: {{printf \"%d\" .ID | print}}"},
      {"n{{| print}}{{.ID}}", "a pipeline ('|') is not supported: {{| print}}"},
      {"n{{(.ID)}}", "a parenthesis is not supported: {{(.ID)}}"},
      {"n{{.ID)}}", "a parenthesis is not supported: {{.ID)}}"},
      {"n{{printf (\"%d\") .ID}}", "a parenthesis is not supported: {{printf (\"%d\") .ID}}"},
      {"n{{printf \"%d\" (.ID)}}", "a parenthesis is not supported: {{printf \"%d\" (.ID)}}"},
      {"n{{print .ID}}", "the function 'print' is not supported: {{print .ID}}"},
      {"n{{println .ID}}", "the function 'println' is not supported: {{println .ID}}"},
      {"n{{len .ID}}", "the function 'len' is not supported: {{len .ID}}"},
      {"n{{and .ID .ID}}", "the function 'and' is not supported: {{and .ID .ID}}"},
      {"n{{ID}}", "there is no function 'ID': {{ID}}"},
      {"n{{add .ID 1}}", "there is no function 'add': {{add .ID 1}}"},
      {"n{{printf2 .ID}}", "there is no function 'printf2': {{printf2 .ID}}"},
      {"n{{- .ID}}", "the trim marker '{{- ' is not supported: {{- .ID}}"},
      {"n{{.ID -}}", "the trim marker ' -}}' is not supported: {{.ID -}}"},
      // Mistakes, as they are to Go.
      {"n{{.ID", "{{.ID is not closed"},
      {"n{{.ID ", "{{.ID  is not closed"},
      {"n{{", "{{ is not closed"},
      {"n{{printf", "{{printf is not closed"},
      {"n{{printf \"%d\" .ID", "{{printf \"%d\" .ID is not closed"},
      {"n{{.ID}.x", "unexpected '}' in {{.ID}.x"},
      {"n{{}}{{.ID}}", "a value is missing in {{}}"},
      {"n{{ }}{{.ID}}", "a value is missing in {{ }}"},
      {"n{{.ID .ID}}", "unexpected '.' in {{.ID .ID}}"},
      {"n{{.ID-}}", "unexpected '-' in {{.ID-}}"},
      {"n{{.ID, 5}}", "unexpected ',' in {{.ID, 5}}"},
      {"n{{ /* a */}}{{.ID}}", "unexpected '/' in {{ /* a */}}"},
      {"n{{printf}}{{.ID}}", "printf needs a format: {{printf}}"},
      {"n{{printf .ID}}", "printf needs a format: {{printf .ID}}"},
      {"n{{printf 5 .ID}}", "printf needs a format: {{printf 5 .ID}}"},
      {"n{{printf\"%d\" .ID}}", "a blank is missing behind printf: {{printf\"%d\" .ID}}"},
      {"n{{printf \"%d\".ID}}", "unexpected '.' in {{printf \"%d\".ID}}"},
      {"n{{printf \"%d\"}}{{.ID}}", "a value is missing in {{printf \"%d\"}}"},
      {"n{{printf \"%d\" .ID .ID}}", "unexpected '.' in {{printf \"%d\" .ID .ID}}"},
      {"n{{printf \"%d .ID}}", "a \" quote is not closed: {{printf \"%d .ID}}"},
      {"n{{printf \"%d\n\" .ID}}", "a \" quote is not closed: {{printf \"%d\\x0a\" .ID}}"},
      {"n{{printf `%d .ID}}", "a ` quote is not closed: {{printf `%d .ID}}"},
      {"n{{printf \"%\\x64\" .ID}}", "an escape ('\\') is not supported: {{printf \"%\\x64\" .ID}}"},
  };
  for (const auto& each : cases) EXPECT_EQ(errorOf(each.text), each.error + std::string(kUse)) << each.text;

  const struct {
    std::string text;
    std::string error;
  } others[] = {
      {"n{{.}}", ". is not supported: {{.}}, use .ID"},
      {"n{{.Id}}", ".Id is not supported: {{.Id}}, use .ID"},
      {"n{{.Foo}}", ".Foo is not supported: {{.Foo}}, use .ID"},
      {"n{{.ID.Foo}}", ".ID.Foo is not supported: {{.ID.Foo}}, use .ID"},
      {"n{{printf \"%d\" .Foo}}", ".Foo is not supported: {{printf \"%d\" .Foo}}, use .ID"},
      {"n{{\"a\"}}{{.ID}}", "a constant is not supported: {{\"a\"}}, write fixed text outside of the braces"},
      {"n{{`a`}}{{.ID}}", "a constant is not supported: {{`a`}}, write fixed text outside of the braces"},
      {"n{{'a'}}{{.ID}}", "a constant is not supported: {{'a'}}, write fixed text outside of the braces"},
      {"n{{5}}{{.ID}}", "a constant is not supported: {{5}}, write fixed text outside of the braces"},
      {"n{{-5}}{{.ID}}", "a constant is not supported: {{-5}}, write fixed text outside of the braces"},
      {"n{{printf \"%d\" 5}}",
       "a constant is not supported: {{printf \"%d\" 5}}, write fixed text outside of the braces"},
      {"n{{/* a comment */}}{{.ID}}", "a comment is not supported: {{/* a comment */}}, leave it out"},
      {"n{{/* a {{.ID}}", "a comment is not supported: {{/* a {{.ID}}, leave it out"},
  };
  for (const auto& each : others) EXPECT_EQ(errorOf(each.text), each.error) << each.text;
  const std::string long_word(200, 'a');
  EXPECT_EQ(errorOf("n{{" + long_word + "}}"), "there is no function '" + std::string(100, 'a') + "…': {{" +
                                                   std::string(98, 'a') + "…" + std::string(kUse));
}

TEST(NamePattern, OtherFormatsAreRefusedByName) {
  const struct {
    std::string_view format;
    std::string_view error;  // of the format
  } cases[] = {
      {"%s", "has the verb %s, which wants a string, and .ID is a number: use %d"},
      {"%v", "has the verb %v, which is not supported: use %d"},
      {"%+v", "has the verb %v, which is not supported: use %d"},
      {"%b", "has the verb %b, which is not supported: use %d, %x, %X or %o"},
      {"%c", "has the verb %c, which is not supported: use %d, %x, %X or %o"},
      {"%q", "has the verb %q, which is not supported: use %d, %x, %X or %o"},
      {"%U", "has the verb %U, which is not supported: use %d, %x, %X or %o"},
      {"%O", "has the verb %O, which is not supported: use %d, %x, %X or %o"},
      {"%e", "has the verb %e, which is not supported: use %d, %x, %X or %o"},
      {"%t", "has the verb %t, which is not supported: use %d, %x, %X or %o"},
      {"%!", "has the verb %!, which is not supported: use %d, %x, %X or %o"},
      {"%\x01", "has the verb %\\x01, which is not supported: use %d, %x, %X or %o"},
      {"%%", "has a '%', which is in no host name: use %d"},
      {"", "has no verb: use %d"},
      {"7", "has no verb: use %d"},
      {"%", "ends without a verb: use %d"},
      {"%03", "ends without a verb: use %d"},
      {"%3d", "pads with blanks, which are in no host name: use %03d"},
      {"%12x", "pads with blanks, which are in no host name: use %012x"},
      {"%-3d", "has the flag '-', which pads with blanks on the right: use %03d"},
      {"%-03X", "has the flag '-', which pads with blanks on the right: use %03X"},
      {"%+d", "has the flag '+', which writes a sign: use %d"},
      {"%+03d", "has the flag '+', which writes a sign: use %03d"},
      {"% d", "has the flag ' ', which writes a blank: use %d"},
      {"% 4d", "has the flag ' ', which writes a blank: use %04d"},
      {"%0 4d", "has the flag ' ', which writes a blank: use %04d"},
      {"%#x", "has the flag '#', which writes 0x or 0: use %x and write fixed text outside of the braces"},
      {"%.3d", "has a precision ('.'): use %03d"},
      {"%.d", "has a precision ('.'): use %d"},
      {"%05.3d", "has a precision ('.'): use %03d"},
      {"%*d", "takes a width from an argument ('*'): use %03d"},
      {"%0*d", "takes a width from an argument ('*'): use %03d"},
      {"%.*d", "takes a width from an argument ('*'): use %03d"},
      {"%[1]d", "has an argument index ('['): use %d"},
      {"node%02d", "is more than a number: write fixed text outside of the braces"},
      {"%02d-x", "is more than a number: write fixed text outside of the braces"},
      {"%d%d", "is more than a number: write fixed text outside of the braces"},
  };
  for (const auto& each : cases) {
    const std::string quoted = each.format == "%\x01" ? "%\\x01" : std::string(each.format);
    EXPECT_EQ(errorOf("n{{printf \"" + std::string(each.format) + "\" .ID}}.x"),
              "the format \"" + quoted + "\" " + std::string(each.error));
  }
  for (const std::string_view format : {"%064d", "%0256d", "%099999999999999999999d"}) {
    EXPECT_EQ(errorOf("n{{printf \"" + std::string(format) + "\" .ID}}.x"),
              "the width of \"" + std::string(format) + "\" is more than 63, the length of the longest label");
  }
}

// Whatever is cut off or put in: a value comes back.
TEST(NamePattern, EveryPrefixAndEveryMutationIsSurvived) {
  const std::string text = "n{{ printf \"%04x\" .ID }}-{{.ID}}.tf.local.";
  ASSERT_TRUE(NamePattern::parse(text, 10));
  for (size_t i = 0; i < text.size(); ++i) {
    errorOf(text.substr(0, i));
    for (int c = 0; c < 256; ++c) {
      std::string mutated = text;
      mutated[i] = static_cast<char>(c);
      EXPECT_FALSE(errorOf(mutated).empty());
    }
  }
}

// --- the time that it takes ---

TEST(NamePattern, TheLimitCostsNothing) {
  const auto start = std::chrono::steady_clock::now();
  constexpr int kTimes = 1000;
  for (int i = 0; i < kTimes; ++i) {
    const NamePattern pattern = parsed("worker{{printf \"%09d\" .ID}}.tf.local.", 1'000'000'000 + i);
    for (int64_t id = 1; id <= 1'000'000'000; id = id * 7 + 1) ASSERT_EQ(pattern.recognise(pattern.render(id)), id);
  }
  const auto elapsed = std::chrono::steady_clock::now() - start;
  // A visit to each ID would take seconds every time; this is some microseconds, more with sanitizers.
  EXPECT_LT(elapsed / kTimes, std::chrono::milliseconds(10));
}

}  // namespace
}  // namespace idetcd::slots
