#include "config/lexer.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::config {
namespace {

// Tokens as "LINE:text", with ^ in front of the first of a line and quotes around quoted ones.
std::vector<std::string> lex(std::string_view text) {
  const Result<std::vector<Token>> tokens = tokenize("F", text);
  if (!tokens) return {tokens.error().message};
  std::vector<std::string> shown;
  for (const Token& token : *tokens) {
    const std::string quote = token.kind == Token::Kind::kQuoted ? "\"" : "";
    shown.push_back((token.starts_line ? "^" : "") + std::to_string(token.line) + ":" + quote + token.text + quote);
    EXPECT_EQ(*token.file, "F");
  }
  return shown;
}

using Tokens = std::vector<std::string>;

TEST(Lexer, SplitsOnWhiteSpaceAndCountsLines) {
  EXPECT_EQ(lex(""), Tokens{});
  EXPECT_EQ(lex(" \t\n \n"), Tokens{});
  EXPECT_EQ(lex("a b\tc\n\n d"), (Tokens{"^1:a", "1:b", "1:c", "^3:d"}));
  EXPECT_EQ(lex("a\vb\fc"), (Tokens{"^1:a", "1:b", "1:c"}));
}

TEST(Lexer, UnicodeBlanksSeparate) {
  EXPECT_EQ(lex("a\u00a0b\u3000c\u2003d\u1680e\u205ff\u2028g\u202fh\u0085i"),
            (Tokens{"^1:a", "1:b", "1:c", "1:d", "1:e", "1:f", "1:g", "1:h", "1:i"}));
  EXPECT_EQ(lex("\u00e9\u200b"), (Tokens{"^1:\u00e9\u200b"}));  // letters, and a zero-width space, which is none
  EXPECT_EQ(lex("a\xc2"), (Tokens{"^1:a\xc2"}));                // a cut-off character
}

TEST(Lexer, BracesAreStructuralOnlyAlone) {
  const Result<std::vector<Token>> tokens = tokenize("F", "{ } {} \"{\" worker{{.ID}}.tf.local. a{ }b");
  ASSERT_TRUE(tokens);
  ASSERT_EQ(tokens->size(), 7u);
  EXPECT_TRUE((*tokens)[0].opens());
  EXPECT_TRUE((*tokens)[1].closes());
  for (size_t i = 2; i < tokens->size(); ++i) EXPECT_FALSE((*tokens)[i].opens() || (*tokens)[i].closes()) << i;
  EXPECT_EQ((*tokens)[4].text, "worker{{.ID}}.tf.local.");
}

TEST(Lexer, Quotes) {
  EXPECT_EQ(lex(R"("a b" c)"), (Tokens{"^1:\"a b\"", "1:c"}));
  EXPECT_EQ(lex(R"("")"), (Tokens{"^1:\"\""}));
  EXPECT_EQ(lex(R"("a \"b\" c")"), (Tokens{"^1:\"a \"b\" c\""}));
  EXPECT_EQ(lex(R"("a\n\t\\")"), (Tokens{R"(^1:"a\n\t\\")"}));  // no other escape
  EXPECT_EQ(lex(R"("worker{{printf \"%03d\" .ID}}.tf")"), (Tokens{R"(^1:"worker{{printf "%03d" .ID}}.tf")"}));
  EXPECT_EQ(lex(R"(a"b c"d)"), (Tokens{"^1:a\"b", "1:c\"d"}));  // only at a token's start
  EXPECT_EQ(lex(R"("a"b)"), (Tokens{"^1:\"a\"", "1:b"}));
  EXPECT_EQ(lex("\"a\nb\" c\nd"), (Tokens{"^1:\"a\nb\"", "2:c", "^3:d"}));  // newlines are text
  EXPECT_EQ(lex("\"a # b\""), (Tokens{"^1:\"a # b\""}));
  EXPECT_EQ(lex("`a b`"), (Tokens{"^1:`a", "1:b`"}));  // backticks are nothing special
}

TEST(Lexer, CommentsEndWithTheLine) {
  EXPECT_EQ(lex("# all\na # b c\nd#e f\n#"), (Tokens{"^2:a", "^3:d"}));
  EXPECT_EQ(lex("a #\"\nb"), (Tokens{"^1:a", "^2:b"}));
}

TEST(Lexer, DropsByteOrderMarkAndCarriageReturns) {
  EXPECT_EQ(lex("\xef\xbb\xbf.:53 {\r\n\twhoami\r\n}\r\n"), (Tokens{"^1:.:53", "1:{", "^2:whoami", "^3:}"}));
  EXPECT_EQ(lex("a\rb"), (Tokens{"^1:ab"}));
  EXPECT_EQ(lex("\"a\r\nb\rc\""), (Tokens{"^1:\"a\nb\rc\""}));
  EXPECT_EQ(lex("a \xef\xbb\xbf"), (Tokens{"^1:a", "1:\xef\xbb\xbf"}));  // only at the start
}

TEST(Lexer, Refuses) {
  EXPECT_EQ(lex("a\nb \"c\nd\n"),
            (Tokens{"F:2 - Error during parsing: Unexpected EOF, the quote that opens here is not closed"}));
  EXPECT_EQ(lex("\"a\\"),
            (Tokens{"F:1 - Error during parsing: Unexpected EOF, the quote that opens here is not closed"}));
  EXPECT_EQ(lex("\""), (Tokens{"F:1 - Error during parsing: Unexpected EOF, the quote that opens here is not closed"}));
  EXPECT_EQ(lex(std::string_view("a\n\0", 3)),
            (Tokens{"F:2 - Error during parsing: Unexpected NUL byte, is this a text file?"}));
}

}  // namespace
}  // namespace idetcd::config
