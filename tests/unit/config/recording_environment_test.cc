#include "config/environment.h"

#include <string>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "config/corefile.h"
#include "fake_environment.h"

namespace idetcd::config {
namespace {

class RecordingEnvironmentTest : public ::testing::Test {
 protected:
  // The digest of a reading of this Corefile.
  std::string read(const std::string& text) const {
    const RecordingEnvironment recording(environment_, text);
    (void)parseCorefile("/conf/Corefile", text, {}, recording);
    return recording.digest();
  }

  FakeEnvironment environment_;
};

TEST_F(RecordingEnvironmentTest, OfACorefileAloneItIsThatOfItsText) {
  const std::string text = "(snippet) {\n  log\n}\n. {\n  import snippet\n  whoami {$X}\n}\n";
  EXPECT_EQ(read(text), sha512(text));
  environment_.variables["X"] = "x";
  EXPECT_EQ(read(text), sha512(text)) << "the same file on every machine";
}

TEST_F(RecordingEnvironmentTest, WhatIsImportedCounts) {
  const std::string text = ". {\n  import a\n}\n";
  environment_.files["/conf/a"] = "whoami\n";
  const std::string first = read(text);
  EXPECT_NE(first, sha512(text));
  EXPECT_EQ(read(text), first);
  environment_.files["/conf/a"] = "any\n";
  EXPECT_NE(read(text), first);
  environment_.files["/conf/a"] = "whoami\n";
  EXPECT_EQ(read(text), first);
  EXPECT_NE(read(text + "#"), first);
}

TEST_F(RecordingEnvironmentTest, WhatIsImportedByTheImportedCounts) {
  environment_.files["/conf/a"] = "import b\n";
  environment_.files["/conf/b"] = "whoami\n";
  const std::string text = ". {\n  import a\n}\n";
  const std::string first = read(text);
  environment_.files["/conf/b"] = "any\n";
  EXPECT_NE(read(text), first);
}

TEST_F(RecordingEnvironmentTest, FilesThatComeAndGoCount) {
  const std::string text = ". {\n  whoami\n  import *.conf\n}\n";
  const std::string none = read(text);
  environment_.files["/conf/1.conf"] = "any\n";
  const std::string one = read(text);
  EXPECT_NE(one, none);
  environment_.files["/conf/2.conf"] = "";
  EXPECT_NE(read(text), one) << "an empty one too: what follows from it is not known here";
  environment_.files["/conf/2.conf"] = "any\n";
  environment_.files.erase("/conf/1.conf");
  EXPECT_NE(read(text), one) << "another name, the same content";
  environment_.files.clear();
  EXPECT_EQ(read(text), none);
}

TEST_F(RecordingEnvironmentTest, WhatIsWrongCountsToo) {
  const std::string text = ". {\n  import a\n}\n";
  const std::string missing = read(text);
  environment_.files["/conf/a"] = "EISDIR";
  const std::string unreadable = read(text);
  EXPECT_NE(unreadable, missing);
  environment_.files["/conf/a"] = "}";
  const std::string nonsense = read(text);
  EXPECT_NE(nonsense, unreadable);
  environment_.files["/conf/a"] = "}}";
  EXPECT_NE(read(text), nonsense);
}

}  // namespace
}  // namespace idetcd::config
