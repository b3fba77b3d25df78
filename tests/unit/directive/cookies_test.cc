// The secrets of DNS cookies in files.
#include <fstream>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "directive/cookies/secrets.h"
#include "support/temporary_directory.h"

namespace idetcd::directive {
namespace {

const std::string kFirst = "e5e973e5a6b2a43f48e7dc849e37bfcf";
const std::string kSecond = "000102030405060708090a0b0c0d0e0f";

std::string errorOf(const std::string& content) {
  const auto secrets = parseSecrets(content);
  return secrets ? "" : secrets.error().message;
}

TEST(CookieSecrets, OneALine) {
  const auto secrets = parseSecrets("# the active one\n" + kFirst + "\r\n\n" + kSecond);
  ASSERT_TRUE(secrets) << secrets.error().message;
  EXPECT_EQ(*secrets, (std::vector{*parseSecret(kFirst), *parseSecret(kSecond)}));
  EXPECT_EQ(errorOf(kFirst + "\n" + kSecond.substr(1)), "line 2 is not 32 hexadecimal digits");
  EXPECT_EQ(errorOf("#\n"), "there is no secret in it; write 32 hexadecimal digits");
  std::string five;
  for (int i = 0; i < 5; ++i) five += kFirst + "\n";
  EXPECT_EQ(errorOf(five), "there are more than 4 secrets in it");
}

TEST(CookieSecrets, AFileThatEverybodyCanReadIsRefused) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/secret";
  EXPECT_EQ(readSecrets(path).error().message, path + ": No such file or directory");
  std::ofstream(path) << kFirst << '\n';
  chmod(path.c_str(), 0644);
  EXPECT_EQ(readSecrets(path).error().message, path + ": everybody may use it; a secret needs: chmod o= FILE");
  chmod(path.c_str(), 0640);
  const auto secrets = readSecrets(path);
  ASSERT_TRUE(secrets) << secrets.error().message;
  EXPECT_EQ(secrets->size(), 1u);
}

}  // namespace
}  // namespace idetcd::directive
