#include "directive/auto/zone_folder.h"

#include <gtest/gtest.h>

namespace idetcd::directive {
namespace {

std::string origin(const std::string& file, const std::string& pattern = R"(db\.(.*))", std::string_view text = "{1}") {
  const auto name = originOfFile(file, re2::RE2(pattern), text);
  return name ? name->toString() : "none";
}

TEST(ZoneFolder, NamesOfZonesFromThoseOfFiles) {
  EXPECT_EQ(origin("db.example.org"), "example.org.");
  EXPECT_EQ(origin("old-db.example.org"), "example.org.") << "a part of the name, as in CoreDNS";
  EXPECT_EQ(origin("readme"), "none");
  EXPECT_EQ(origin("db."), "none");
  EXPECT_EQ(origin("db.a..b"), "none");
  EXPECT_EQ(origin("a-b.zone", "^(.*)-(.*)\\.zone$", "{2}.{1}.net"), "b.a.net.");
  EXPECT_EQ(origin("x", "(x)|(y)", "{1}{2}.{9}a"), "x.a.");
  EXPECT_EQ(origin("x", "x", "{0}.{no}"), "x.{no}.");
}

}  // namespace
}  // namespace idetcd::directive
