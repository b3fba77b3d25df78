#include "zones/master_scanner.h"

#include <gtest/gtest.h>

namespace idetcd::zones {
namespace {

// The entries of a text: words, "quoted", with the line before, and '>' for a blank owner; or the error with its line.
std::vector<std::string> entriesOf(std::string_view text) {
  MasterScanner scanner(text);
  std::vector<std::string> entries;
  for (;;) {
    const auto more = scanner.next();
    if (!more) entries.push_back(std::to_string(scanner.line()) + " error: " + more.error().message);
    if (!more || !*more) return entries;
    std::string entry = std::to_string(scanner.line()) + (scanner.isOwnerBlank() ? ">" : ":");
    for (const Word& word : scanner.words())
      entry += word.quoted ? " \"" + std::string(word.text) + '"' : " " + std::string(word.text);
    entries.push_back(entry);
  }
}

using Entries = std::vector<std::string>;

TEST(MasterScanner, LinesCommentsAndBlanks) {
  EXPECT_EQ(entriesOf("a A 192.0.2.1 ; one\n\n ; nothing\n\tAAAA ::1\r\nb\tTXT x"),
            (Entries{"1: a A 192.0.2.1", "4> AAAA ::1", "5: b TXT x"}));
  EXPECT_EQ(entriesOf(""), Entries{});
  EXPECT_EQ(entriesOf("; only"), Entries{});
}

TEST(MasterScanner, ParenthesesJoinLines) {
  EXPECT_EQ(entriesOf("@ SOA ns m ( 1 ; serial\n 2\n3 )4\nx A 1"), (Entries{"1: @ SOA ns m 1 2 3 4", "4: x A 1"}));
  EXPECT_EQ(entriesOf("a(b)c"), Entries{"1: a b c"});
}

TEST(MasterScanner, QuotesAndEscapesStay) {
  EXPECT_EQ(entriesOf("a TXT \"x ; (y\" \"\" z\\;\\\"\\032"), Entries{"1: a TXT \"x ; (y\" \"\" z\\;\\\"\\032"});
  EXPECT_EQ(entriesOf("a HTTPS 1 . alpn=\"h2 h3\" port=1"), Entries{"1: a HTTPS 1 . alpn=\"h2 h3\" port=1"});
  EXPECT_EQ(entriesOf("a TXT \"\\\"\"\"b\""), Entries{"1: a TXT \"\\\"\" \"b\""});
}

TEST(MasterScanner, ErrorsHaveTheLineOfTheEntry) {
  EXPECT_EQ(entriesOf("a\nb (\nc"), (Entries{"1: a", "2 error: a '(' without a ')'"}));
  EXPECT_EQ(entriesOf("b )"), Entries{"1 error: a ')' without a '('"});
  EXPECT_EQ(entriesOf("\nb \"c\nd\""), Entries{"2 error: a quotation mark is not closed"});
  EXPECT_EQ(entriesOf("b \\\nc"), Entries{"1 error: a '\\' at the end of a line"});
  EXPECT_EQ(entriesOf("b \"c\\"), Entries{"1 error: a quotation mark is not closed"});
}

}  // namespace
}  // namespace idetcd::zones
