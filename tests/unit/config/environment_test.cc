#include "config/environment.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fake_environment.h"

namespace idetcd::config {
namespace {

TEST(ExpandVariables, ReplacesEachReferenceOnce) {
  FakeEnvironment environment;
  environment.variables = {{"A", "x"}, {"B", "{$A}"}, {"SELF", "{$SELF}"}, {"BLANK", "a b"}, {"A B", "odd"}};
  const struct {
    std::string_view text;
    std::string_view expanded;
  } cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"{$A}", "x"},
      {"{%A%}", "x"},
      {"1{$A}2{%A%}3{$A}", "1x2x3x"},
      {"{$UNSET}", ""},
      {"a{$UNSET}b", "ab"},
      {"{$B}", "{$A}"},  // a value is not looked at again
      {"{$SELF}", "{$SELF}"},
      {"{$BLANK}", "a b"},
      {"{$A B}", "odd"},
      {"{$}", "{$}"},
      {"{%%}", "{%%}"},
      {"{$A", "{$A"},
      {"{%A}", "{%A}"},
      {"{A}", "{A}"},
      {"{{$A}}", "{x}"},
      {"worker{{.ID}}.{$A}", "worker{{.ID}}.x"},
      {"{$$A}", ""},
      {"{${$A}", ""},  // the variable "{$A"
  };
  for (const auto& each : cases) {
    EXPECT_EQ(expandVariables(each.text, environment), each.expanded) << each.text;
  }
}

class SystemEnvironmentTest : public testing::Test {
 protected:
  SystemEnvironmentTest() {
    std::string path = (std::filesystem::temp_directory_path() / "idetcd-config-XXXXXX").string();
    directory_ = mkdtemp(path.data());
  }
  ~SystemEnvironmentTest() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name) << text;
    return (directory_ / name).string();
  }

  std::filesystem::path directory_;
  SystemEnvironment environment_;
};

TEST_F(SystemEnvironmentTest, ReadsFiles) {
  const std::string path = write("a", "text\n");
  EXPECT_EQ(environment_.readFile(path, 5).value(), "text\n");
  EXPECT_EQ(environment_.readFile(path, 4).error().message, "larger than 4 bytes");
  EXPECT_EQ(environment_.readFile(directory_.string(), 100).error().message, "Is a directory");
  EXPECT_EQ(environment_.readFile(path + "x", 100).error().message, "No such file or directory");
}

TEST_F(SystemEnvironmentTest, GlobsInOrder) {
  const std::string b = write("b.conf", "");
  const std::string a = write("a.conf", "");
  write(".hidden.conf", "");
  EXPECT_EQ(environment_.glob((directory_ / "*.conf").string()), (std::vector<std::string>{a, b}));
  EXPECT_EQ(environment_.glob(a), std::vector<std::string>{a});
  EXPECT_EQ(environment_.glob(a + "x"), std::vector<std::string>{});
}

TEST_F(SystemEnvironmentTest, PathsAndVariables) {
  EXPECT_EQ(environment_.absolutePath("/a/./b/../c"), "/a/c");
  EXPECT_EQ(environment_.absolutePath("x/y"), (std::filesystem::current_path() / "x/y").string());
  EXPECT_EQ(environment_.variable("PATH"), std::getenv("PATH"));
  EXPECT_EQ(environment_.variable("IDETCD_TEST_SURELY_UNSET"), "");
}

}  // namespace
}  // namespace idetcd::config
