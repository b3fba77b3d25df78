#include "config/corefile.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fake_environment.h"

namespace idetcd::config {
namespace {

// A Corefile on one line a block: "KEY KEY { name arg arg; name }"; an error as its message.
std::string show(const Corefile& corefile) {
  std::string shown;
  for (const ServerBlock& block : corefile.blocks) {
    for (const ServerKey& key : block.keys) shown += key.text + " ";
    shown += "{";
    for (const Directive& directive : block.directives) {
      shown += " " + directive.name;
      for (const Token& token : directive.tokens) shown += (token.starts_line ? "|" : " ") + token.text;
      shown += ";";
    }
    shown += " }\n";
  }
  return shown;
}

class CorefileTest : public testing::Test {
 protected:
  std::string parse(std::string_view text) {
    const Result<Corefile> parsed = parseCorefile("Corefile", text, options_, environment_);
    if (!parsed) return parsed.error().message;
    warnings_ = parsed->warnings;
    return show(*parsed);
  }

  FakeEnvironment environment_;
  ParseOptions options_;
  std::vector<std::string> warnings_;
};

TEST_F(CorefileTest, SeedExamplesVerbatim) {
  EXPECT_EQ(parse(R"(. {
    idetcd {
        endpoint http://127.0.0.1:2379
        limit 5
        pattern worker{{.ID}}.tf.local.
    }
}
)"),
            ".:53 { idetcd {|endpoint http://127.0.0.1:2379|limit 5|pattern worker{{.ID}}.tf.local.|}; }\n");
  EXPECT_EQ(parse(R"(.:1053 {
    idetcd {
        endpoint http://127.0.0.1:2379 http://127.0.0.1:22379
        pattern "worker{{ .ID }}.tf.local."
    }
})"),
            ".:1053 { idetcd {|endpoint http://127.0.0.1:2379 http://127.0.0.1:22379|pattern worker{{ .ID "
            "}}.tf.local.|}; }\n");
  EXPECT_EQ(parse(". {\n idetcd {\n pattern \"n{{printf \\\"%03d\\\" .ID}}.tf.\"\n }\n}"),
            ".:53 { idetcd {|pattern n{{printf \"%03d\" .ID}}.tf.|}; }\n");
}

TEST_F(CorefileTest, Blocks) {
  EXPECT_EQ(parse(""), "");
  EXPECT_EQ(parse("# nothing\n"), "");
  EXPECT_EQ(parse(". {\n}"), ".:53 { }\n");
  EXPECT_EQ(parse("."), ".:53 { }\n");
  EXPECT_EQ(parse(".\nwhoami\nlog a"), ".:53 { whoami; log a; }\n");  // one block without braces
  EXPECT_EQ(parse(".\n{\n whoami\n}"), ".:53 { whoami; }\n");
  EXPECT_EQ(parse(". { whoami\n}"), ".:53 { whoami; }\n");
  EXPECT_EQ(parse("a {\n whoami\n}\nb {\n log\n}\nc\nerrors"),
            "a.:53 { whoami; }\nb.:53 { log; }\nc.:53 { errors; }\n");
  EXPECT_EQ(parse("a { } b { }"), "a.:53 { }\nb.:53 { }\n");
  EXPECT_EQ(parse(". {\n log\n log a\n}"), ".:53 { log; log a; }\n");
  EXPECT_EQ(parse(". {\n log { class error }\n whoami\n}"), ".:53 { log { class error }; whoami; }\n");
  EXPECT_EQ(parse("\xef\xbb\xbf. {\r\n  whoami # it's me\r\n}\r\n"), ".:53 { whoami; }\n");
}

TEST_F(CorefileTest, BlocksAndDirectivesKnowTheirPlace) {
  const Result<Corefile> parsed = parseCorefile("C", "\n. {\n log\n\n whoami\n}", options_, environment_);
  ASSERT_TRUE(parsed);
  const ServerBlock& block = parsed->blocks.at(0);
  EXPECT_EQ(block.file, "C");
  EXPECT_EQ(block.line, 2);
  EXPECT_EQ(block.directives.at(0).line, 3);
  EXPECT_EQ(block.directives.at(1).line, 5);
  EXPECT_EQ(block.directives.at(1).file, "C");
}

TEST_F(CorefileTest, Keys) {
  options_.default_port = 1053;
  EXPECT_EQ(parse("a b:54 c {\n}"), "a.:1053 b.:54 c.:1053 { }\n");
  EXPECT_EQ(parse("a, b,c:1,\n d\n{\n}"), "a.:1053 b.:1053 c.:1 d.:1053 { }\n");
  EXPECT_EQ(parse("a,\nb,\n\nc {\n}"), "a.:1053 b.:1053 c.:1053 { }\n");
  EXPECT_EQ(parse("a , b {\n}"), "a.:1053 b.:1053 { }\n");
  EXPECT_EQ(parse("dns://a \"b\" {\n}"), "a.:1053 b.:1053 { }\n");
  EXPECT_EQ(parse("10.0.0.0/15 {\n}"), "0.10.in-addr.arpa.:1053 1.10.in-addr.arpa.:1053 { }\n");
  EXPECT_EQ(parse("\"\" a {\n}"), "a.:1053 { }\n");
}

TEST_F(CorefileTest, EnvironmentVariables) {
  environment_.variables = {{"ZONE", "tf.local"},    {"PORT", "54"},      {"BLANK", "a b"},     {"BRACE", "{"},
                            {"DIRECTIVE", "whoami"}, {"COMMA", "x.org,"}, {"IMPORT", "import"}, {"NAME", "snip"}};
  options_.known_directives = {"whoami", "log"};
  EXPECT_EQ(parse("{$ZONE}:{%PORT%} {\n {$DIRECTIVE}\n log {$BLANK} {$UNSET} {$BRACE}\n}"),
            "tf.local.:54 { whoami; log a b  {; }\n");
  EXPECT_EQ(parse("{$COMMA}\ny.org {\n}"), "x.org.:53 y.org.:53 { }\n");
  EXPECT_EQ(parse("(snip) {\n log\n}\n. {\n {$IMPORT} {$NAME}\n}"), ".:53 { log; }\n");
  EXPECT_EQ(parse("{$UNSET} {\n}"), "Corefile:1 - Error during parsing: Server block without a zone");
  EXPECT_EQ(parse(". {\n {$UNSET}\n}"), "Corefile:2 - Error during parsing: Unknown directive ''");
}

TEST_F(CorefileTest, VariableThatIsABraceOpensNothing) {
  environment_.variables = {{"BRACE", "{"}};
  const Result<Corefile> parsed = parseCorefile("C", ". {\n log {$BRACE}\n}", options_, environment_);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_FALSE(parsed->blocks[0].directives[0].tokens[0].opens());
}

TEST_F(CorefileTest, Snippets) {
  EXPECT_EQ(parse("(a) {\n log\n cache 30\n}\n. {\n import a\n whoami\n}\nb {\n import a\n}"),
            ".:53 { log; cache 30; whoami; }\nb.:53 { log; cache 30; }\n");
  EXPECT_EQ(parse("(a) { log }\n. {\n import a\n}"), ".:53 { log; }\n");
  EXPECT_EQ(parse("(a) {\n}\n. {\n import a\n}"), ".:53 { }\n");
  EXPECT_EQ(parse("(a) {\n log\n}"), "");
  EXPECT_EQ(parse("(a)\n{\n log\n}\n. {\n import a\n}"), ".:53 { log; }\n");
  // In a directive's block, with nested braces, and in another snippet.
  EXPECT_EQ(parse("(o) {\n limit 5\n}\n(p) {\n idetcd {\n import o\n ttl 5s\n }\n}\n. {\n import p\n}"),
            ".:53 { idetcd {|limit 5|ttl 5s|}; }\n");
  // A snippet's tokens have lower line numbers than what stands in front of them: that glues nothing together.
  EXPECT_EQ(parse("(a) {\n log x\n}\n(b) {\n errors\n}\n. {\n import b\n import a\n cache 5\n import a\n}"),
            ".:53 { errors; log x; cache 5; log x; }\n");
  // Keys and whole blocks.
  EXPECT_EQ(parse("(z) {\n a b\n}\nimport z\n{\n log\n}"), "a.:53 b.:53 { log; }\n");
  EXPECT_EQ(parse("(z) {\n b c\n}\na,\nimport z\n{\n}"), "a.:53 b.:53 c.:53 { }\n");
  EXPECT_EQ(parse("(z) {\n a {\n log\n }\n}\nimport z\nb {\n}"), "a.:53 { log; }\nb.:53 { }\n");
}

TEST_F(CorefileTest, Imports) {
  environment_.files = {
      {"/conf/common", "log\nerrors"},
      {"/conf/d/a.conf", "a {\n import ../common\n}"},
      {"/conf/d/b.conf", "b {\n import sub/deep\n}\n"},
      {"/conf/d/sub/deep", "import deeper\ncache"},
      {"/conf/d/sub/deeper", "whoami"},
      {"/conf/options", "limit 5\npattern x"},
      {"/etc/abs", "hosts"},
      {"/conf/empty", "# nothing\n"},
      {"/conf/snippets", "(s) {\n import common\n}"},
  };
  EXPECT_EQ(parse(". {\n import common\n}"), ".:53 { log; errors; }\n");
  EXPECT_EQ(parse("import d/*.conf"), "a.:53 { log; errors; }\nb.:53 { whoami; cache; }\n");
  EXPECT_EQ(parse("import d/*.conf\n. {\n import /etc/abs\n}"),
            "a.:53 { log; errors; }\nb.:53 { whoami; cache; }\n.:53 { hosts; }\n");
  EXPECT_EQ(parse(". {\n idetcd {\n import options\n }\n}"), ".:53 { idetcd {|limit 5|pattern x|}; }\n");
  EXPECT_EQ(parse(". {\n idetcd { import options\n }\n}"),
            ".:53 { idetcd { import options|}; }\n");  // not at a line's start
  EXPECT_EQ(parse("import empty\n. {\n import empty\n log\n}\nimport empty"), ".:53 { log; }\n");
  EXPECT_EQ(parse("import snippets\n. {\n import s\n}"), ".:53 { log; errors; }\n");
  EXPECT_EQ(parse(". {\n import \"common\"\n import common\n}"), ".:53 { log; errors; log; errors; }\n");
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(parse(". {\n import none/*.conf\n}"), ".:53 { }\n");
  EXPECT_EQ(warnings_, std::vector<std::string>{"No files matching import glob pattern: none/*.conf"});
}

TEST_F(CorefileTest, ErrorsNameTheImportedFile) {
  environment_.files = {{"/conf/d/x", "\n nonsense"}, {"/conf/d/quote", "a\n\"b"}};
  options_.known_directives = {"log"};
  EXPECT_EQ(parse(". {\n import d/x\n}"), "/conf/d/x:2 - Error during parsing: Unknown directive 'nonsense'");
  EXPECT_EQ(parse(". {\n import d/quote\n}"),
            "/conf/d/quote:2 - Error during parsing: Unexpected EOF, the quote that opens here is not closed");
  EXPECT_EQ(parse(". {\n log\n nonsense\n}"), "Corefile:3 - Error during parsing: Unknown directive 'nonsense'");
}

TEST_F(CorefileTest, BadImports) {
  environment_.files = {{"/conf/dir", "EISDIR"}};
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {". {\n import\n}",
       "Corefile:2 - Error during parsing: Wrong argument count or unexpected line ending after 'import'"},
      {". {\n import a b\n}",
       "Corefile:2 - Error during parsing: Import takes only one argument (glob pattern or file)"},
      {". {\n import a }", "Corefile:2 - Error during parsing: Import takes only one argument (glob pattern or file)"},
      {". {\n import \"\"\n}", "Corefile:2 - Error during parsing: Import requires a non-empty filepath"},
      {". {\n import {$UNSET}\n}", "Corefile:2 - Error during parsing: Import requires a non-empty filepath"},
      {". {\n\n import none\n}", "Corefile:3 - Error during parsing: File to import not found: none"},
      {"import none", "Corefile:1 - Error during parsing: File to import not found: none"},
      {". {\n import late\n}\n(late) {\n}", "Corefile:2 - Error during parsing: File to import not found: late"},
      {". {\n import dir\n}", "Corefile:2 - Error during parsing: Could not import /conf/dir: Is a directory"},
      {". {\n import */*.conf\n}",
       "Corefile:2 - Error during parsing: Glob pattern may only contain one wildcard (*), but has others: "
       "/conf/*/*.conf"},
      {". {\n import [ab]\n}",
       "Corefile:2 - Error during parsing: Glob pattern may only contain one wildcard (*), but has others: /conf/[ab]"},
  };
  for (const auto& each : cases) EXPECT_EQ(parse(each.text), each.error) << each.text;
}

TEST_F(CorefileTest, CyclesAndRunawaysEnd) {
  environment_.files = {{"/conf/a", "log\nimport b"},
                        {"/conf/b", "import a"},
                        {"/conf/self", "import self\n"},
                        {"/conf/Corefile", ". {\n}"},
                        {"/conf/g/x", "import *"}};
  EXPECT_EQ(parse(". {\n import a\n}"),
            "/conf/b:1 - Error during parsing: Import cycle: /conf/a -> /conf/b -> /conf/a");
  EXPECT_EQ(parse("import self"), "/conf/self:1 - Error during parsing: Import cycle: /conf/self -> /conf/self");
  EXPECT_EQ(parse("import Corefile"),
            "Corefile:1 - Error during parsing: Import cycle: /conf/Corefile -> /conf/Corefile");
  EXPECT_EQ(parse("import g/*"), "/conf/g/x:1 - Error during parsing: Import cycle: /conf/g/x -> /conf/g/x");
  EXPECT_EQ(parse("(s) {\n import s\n}\n. {\n import s\n}"),
            "Corefile:2 - Error during parsing: Import cycle: (s) -> (s)");

  // Each snippet imports the one before twice: 2^30 lines if nothing stopped it.
  std::string doubling = "(s0) {\n log\n}\n";
  for (int i = 1; i <= 30; ++i) {
    const std::string previous = "import s" + std::to_string(i - 1) + "\n";
    doubling += "(s" + std::to_string(i) + ") {\n" + previous + previous + "}\n";
  }
  EXPECT_TRUE(parse(doubling + ". {\n import s30\n}").ends_with("more than 1000 imports"));
  EXPECT_FALSE(parse(doubling + ". {\n import s8\n}").ends_with("imports"));

  std::string chain = "(s0) {\n log\n}\n";
  for (int i = 1; i <= 200; ++i) {
    chain += "(s" + std::to_string(i) + ") {\nimport s" + std::to_string(i - 1) + "\n}\n";
  }
  EXPECT_TRUE(parse(chain + ". {\n import s200\n}").ends_with("maximum import depth (100) exceeded"));
  EXPECT_EQ(parse(chain + ". {\n import s98\n}"), ".:53 { log; }\n");

  std::string many = "(s) {\n log" + std::string(20'000, '\n');
  for (int i = 0; i < 10'000; ++i) many += " x";
  many += "\n}\n. {\n";
  for (int i = 0; i < 200; ++i) many += "import s\n";
  EXPECT_TRUE(parse(many + "}").ends_with("more than 1000000 tokens"));
  EXPECT_EQ(parse(std::string(kMaxInputBytes + 1, ' ')),
            "Corefile:1 - Error during parsing: Corefile: more than 4194304 bytes in all");
}

TEST_F(CorefileTest, SyntaxErrors) {
  options_.known_directives = {"log", "whoami"};
  const struct {
    std::string_view text;
    std::string_view error;
  } cases[] = {
      {". {\n whoami\n", "Corefile:2 - Error during parsing: Unexpected EOF, the '{' of line 1 is not closed"},
      {". {", "Corefile:1 - Error during parsing: Unexpected EOF, the '{' of line 1 is not closed"},
      {". {\n log {\n class\n}\n",
       "Corefile:4 - Error during parsing: Unexpected EOF, the '{' of line 1 is not closed"},
      {". {\n log {\n class\n", "Corefile:3 - Error during parsing: Unexpected EOF, the '{' of line 2 is not closed"},
      {"(a) {\n log\n", "Corefile:2 - Error during parsing: Unexpected EOF, the '{' of line 1 is not closed"},
      {"}", "Corefile:1 - Error during parsing: Unexpected '}' because no matching opening brace"},
      {". {\n}\n}\n", "Corefile:3 - Error during parsing: Unexpected '}' because no matching opening brace"},
      {".\nwhoami\n}\n", "Corefile:3 - Error during parsing: Unexpected '}' because no matching opening brace"},
      {". {\n whoami }\n",
       "Corefile:2 - Error during parsing: Unexpected '}' because no matching opening brace; what ends a server "
       "block stands on a line of its own"},
      {". {\n log {\n } }\n",
       "Corefile:3 - Error during parsing: Unexpected '}' because no matching opening brace; what ends a server "
       "block stands on a line of its own"},
      {". {\n log {\n } whoami\n}\n",
       "Corefile:3 - Error during parsing: Unexpected token 'whoami' after the closing brace"},
      {". {\n log\n {\n }\n}", "Corefile:3 - Error during parsing: Unknown directive '{'"},
      {". {\n LOG\n}", "Corefile:2 - Error during parsing: Unknown directive 'LOG'"},
      {". {\n whoami\n}\nexample.org\n nonsense", "Corefile:5 - Error during parsing: Unknown directive 'nonsense'"},
      {".\nwhoami\nexample.org {\n}", "Corefile:3 - Error during parsing: Unknown directive 'example.org'"},
      {"{\n whoami\n}", "Corefile:1 - Error during parsing: Server block without a zone"},
      {"a, {\n}", "Corefile:1 - Error during parsing: Expected another address but had '{' - check for extra comma"},
      {"a,\n\n{\n}", "Corefile:3 - Error during parsing: Expected another address but had '{' - check for extra comma"},
      {"a,\n", "Corefile:1 - Error during parsing: Unexpected EOF"},
      {"(a)\nlog\n", "Corefile:2 - Error during parsing: Expected '{' after the snippet (a)"},
      {"(a)", "Corefile:1 - Error during parsing: Expected '{' after the snippet (a)"},
      {"() {\n}", "Corefile:1 - Error during parsing: zone is not a valid domain name: '()' ('(' must be escaped)"},
      {"(a) (b) {\n}",
       "Corefile:1 - Error during parsing: zone is not a valid domain name: '(a)' ('(' must be escaped)"},
      {"(a) {\n}\n(a) {\n}", "Corefile:3 - Error during parsing: redeclaration of previously declared snippet a"},
      {"\n.:x {\n}", "Corefile:2 - Error during parsing: invalid port 'x' in '.:x'"},
      {"a,\nquic://b {\n}",
       "Corefile:2 - Error during parsing: quic:// is not supported, only dns://, tls:// and "
       "https:// are: 'quic://b'"},
  };
  for (const auto& each : cases) EXPECT_EQ(parse(each.text), each.error) << each.text;
}

TEST_F(CorefileTest, AZoneAndPortBelongToOneBlock) {
  EXPECT_EQ(parse(". {\n}\n.:54 {\n}\nA {\n}"), ".:53 { }\n.:54 { }\na.:53 { }\n");
  EXPECT_EQ(parse(". {\n}\n. {\n}"),
            "Corefile:3 - Error during parsing: cannot serve dns://.:53 - it is already defined");
  EXPECT_EQ(parse("a.org {\n}\nb {\n}\nc A.org.:53 {\n}"),
            "Corefile:5 - Error during parsing: cannot serve dns://a.org.:53 - it is already defined");
  EXPECT_EQ(parse("a a {\n}"), "Corefile:1 - Error during parsing: cannot serve dns://a.:53 - it is already defined");
  EXPECT_EQ(parse("10.in-addr.arpa 10.0.0.0/8 {\n}"),
            "Corefile:1 - Error during parsing: cannot serve dns://10.in-addr.arpa.:53 - it is already defined");
  options_.default_port = 54;
  EXPECT_EQ(parse(". {\n}\n.:54 {\n}"),
            "Corefile:3 - Error during parsing: cannot serve dns://.:54 - it is already defined");
}

TEST_F(CorefileTest, APortBelongsToOneScheme) {
  EXPECT_EQ(parse(". tls://. https://. {\n}\ntls://a {\n}"), ".:53 tls://.:853 https://.:443 { }\ntls://a.:853 { }\n");
  EXPECT_EQ(parse("tls://. {\n}\ntls://.:853 {\n}"),
            "Corefile:3 - Error during parsing: cannot serve tls://.:853 - it is already defined");
  EXPECT_EQ(parse("tls://. {\n}\na:853 {\n}"),
            "Corefile:3 - Error during parsing: cannot serve dns://a.:853 - port 853 is for tls://.");
  EXPECT_EQ(parse("https://a:853 tls://b {\n}"),
            "Corefile:1 - Error during parsing: cannot serve https://a.:853 - port 853 is for tls://b.");
}

TEST_F(CorefileTest, UnlessTheBlocksListenOnDifferentAddresses) {
  const std::string two = ". {\n bind 127.0.0.1\n}\n. {\n bind 127.0.0.2 ::1 {\n except x\n }\n}";
  EXPECT_EQ(parse(two), "Corefile:4 - Error during parsing: cannot serve dns://.:53 - it is already defined");
  options_.listen_directive = "bind";
  EXPECT_EQ(parse(two), ".:53 { bind 127.0.0.1; }\n.:53 { bind 127.0.0.2 ::1 {|except x|}; }\n");
  EXPECT_EQ(parse(". {\n bind 127.0.0.1\n}\n. {\n bind ::1 127.0.0.1\n}"),
            "Corefile:4 - Error during parsing: cannot serve dns://.:53 on ::1, 127.0.0.1 - it is already defined");
  EXPECT_EQ(parse(". {\n}\n. {\n bind 127.0.0.1\n}"),
            "Corefile:3 - Error during parsing: cannot serve dns://.:53 on 127.0.0.1 - it is already defined");
  EXPECT_EQ(parse(". {\n bind 127.0.0.1\n}\n. {\n}"),
            "Corefile:4 - Error during parsing: cannot serve dns://.:53 - it is already defined");
}

// Whatever is cut off or put in: a value comes back, and it comes back soon.
TEST_F(CorefileTest, EveryPrefixAndEveryMutationIsSurvived) {
  environment_.files = {{"/conf/f", "log\n"}};
  const std::string text =
      "(s) {\n errors {\n a \"b\\\"\" }\n}\na, b:54,\nc {\n import s\n import f\n log {$X} {\n d\n }\n} # e\n. {\n}\n";
  ASSERT_FALSE(parse(text).starts_with("Corefile:")) << parse(text);
  for (size_t i = 0; i < text.size(); ++i) {
    parse(text.substr(0, i));
    for (const char c : {'{', '}', '"', '\n', ' ', ',', '#', '\\', '\0', '\xff'}) {
      std::string mutated = text;
      mutated[i] = c;
      parse(mutated);
    }
  }
}

}  // namespace
}  // namespace idetcd::config
