#include "directive/tsig/key_file.h"

#include <gtest/gtest.h>

namespace idetcd::directive {
namespace {

std::string wrongIn(std::string_view text) {
  const auto keys = parseKeyFile(text);
  return keys ? "nothing" : keys.error().message;
}

TEST(KeyFile, KeysAsNamedHasThem) {
  const auto keys = parseKeyFile(
      "# of tsig-keygen\n/* two\nlines */ key \"a.example\" {\n\talgorithm hmac-sha512; // the best\n\tsecret \"YWJj\";\n};\n"
      "key b. { secret ZGVm; };");
  ASSERT_TRUE(keys) << keys.error().message;
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].name.toString(), "a.example.");
  EXPECT_EQ((*keys)[0].algorithm, tsig::Algorithm::kSha512);
  EXPECT_EQ((*keys)[0].secret, (std::vector<uint8_t>{'a', 'b', 'c'}));
  EXPECT_EQ((*keys)[1].name.toString(), "b.");
  EXPECT_EQ((*keys)[1].algorithm, tsig::Algorithm::kSha256);
}

TEST(KeyFile, ErrorsSayTheLineAndNotTheSecret) {
  EXPECT_EQ(wrongIn("\n"), "there is no key in it");
  EXPECT_EQ(wrongIn("\nzone x"), R"(line 2: a key is written as: key "NAME" { algorithm ALGORITHM; secret "KEY"; };)");
  EXPECT_EQ(wrongIn("key a { secret \"??\"; };"), "line 1: the secret of key 'a' is not in base64");
  EXPECT_EQ(wrongIn("key a { };"), "line 1: the secret of key 'a' is not in base64");
  EXPECT_EQ(wrongIn("key a { secret YWJj };"), "line 1: a semicolon is missing");
  EXPECT_EQ(wrongIn("key a { secret YWJj;"), "line 1: a key has a secret and maybe an algorithm, and }");
  EXPECT_EQ(wrongIn("key a {\nalgorithm md5; secret YWJj; };"),
            "line 2: 'md5' is none of hmac-sha1, hmac-sha224, hmac-sha256, hmac-sha384 and hmac-sha512");
  EXPECT_EQ(wrongIn("key"), "line 1: the name of a key is followed by {");
  EXPECT_EQ(wrongIn("key \"a"), "line 1: the name of a key is followed by {");
}

}  // namespace
}  // namespace idetcd::directive
