#include "cluster/herald.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "unit/cluster/temporary_directory.h"

namespace idetcd::cluster {
namespace {

// Patterns let no such name pass; the file would be safe all the same.
TEST(RenderIdentity, AShellTakesEveryValueAsItIs) {
  const TemporaryDirectory directory;
  const std::string file = directory / "identity";
  const std::string out = directory / "out";
  for (const std::string odd : {"plain", "", "with space", "it's", "''", "a\nb", "$(touch x)", "`id`", "\\", "\\'",
                                "\"", "*", "~", "#", ";&|<>(){}!", "-n", "\xff\x01\t"}) {
    overwrite(file, renderIdentity({.name = odd, .id = 7, .token = 42, .uuid = odd, .addresses = {}}));
    const std::string command = "cd " + directory.path() + " && . " + file +
                                " && printf '%s|%s|%s|%s|%s.' \"$IDETCD_NAME\" \"$IDETCD_ID\" \"$IDETCD_TOKEN\" " +
                                "\"$IDETCD_UUID\" \"$IDETCD_IPV4$IDETCD_IPV6\" > " + out;
    ASSERT_EQ(std::system(command.c_str()), 0) << odd;
    EXPECT_EQ(contentsOf(out), odd + "|7|42|" + odd + "|.");
    EXPECT_EQ(contentsOf(directory / "x"), "") << "a command was run";
  }
}

}  // namespace
}  // namespace idetcd::cluster
