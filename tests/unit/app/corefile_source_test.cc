#include "app/corefile_source.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "support/temporary_directory.h"

namespace idetcd::app {
namespace {

// Each test in a working directory of its own.
class CorefileSourceTest : public ::testing::Test {
 protected:
  CorefileSourceTest() : before_(std::filesystem::current_path()) { std::filesystem::current_path(directory_.path()); }
  ~CorefileSourceTest() override { std::filesystem::current_path(before_); }

  static CorefileSource source(const std::string& conf = {}) {
    Options options;
    options.conf = conf;
    return CorefileSource(options);
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path before_;
};

TEST_F(CorefileSourceTest, ReadsWhatIsThereEachTime) {
  overwrite(directory_ / "x", ". {\n  whoami\n}\n");
  const CorefileSource source = this->source("x");
  EXPECT_TRUE(source.canBeReadAgain());
  const auto first = source.read();
  ASSERT_TRUE(first.plan.has_value());
  EXPECT_EQ(first.name, "x");
  EXPECT_EQ(first.digest, sha512(". {\n  whoami\n}\n"));
  overwrite(directory_ / "x", ". {\n  nonsense\n}\n");
  const auto second = source.read();
  ASSERT_FALSE(second.plan.has_value());
  EXPECT_NE(second.plan.error().message.find("x:2 - Error during parsing: Unknown directive 'nonsense'"),
            std::string::npos);
  EXPECT_EQ(second.digest, sha512(". {\n  nonsense\n}\n"));
}

TEST_F(CorefileSourceTest, WithoutAFileItIsTheDefaultUntilThereIsOne) {
  const CorefileSource source = this->source();
  EXPECT_EQ(source.read().name, "default");
  EXPECT_EQ(source.read().plan->blocks.size(), 1U);
  overwrite(directory_ / "Corefile", "a. {\n}\nb. {\n}\n");
  EXPECT_EQ(source.read().name, "Corefile");
  EXPECT_EQ(source.read().plan->blocks.size(), 2U);
}

TEST_F(CorefileSourceTest, AFileThatHasGoneIsNotTheDefault) {
  overwrite(directory_ / "Corefile", "a. {\n}\n");
  const CorefileSource source = this->source();
  std::filesystem::remove(directory_ / "Corefile");
  const auto reading = source.read();
  ASSERT_FALSE(reading.plan.has_value());
  EXPECT_EQ(reading.plan.error().message, "cannot read Corefile: No such file or directory");
  EXPECT_FALSE(reading.digest.empty());
  EXPECT_EQ(reading.digest, source.read().digest);
}

TEST_F(CorefileSourceTest, StandardInputIsReadOnce) { EXPECT_FALSE(source("stdin").canBeReadAgain()); }

}  // namespace
}  // namespace idetcd::app
