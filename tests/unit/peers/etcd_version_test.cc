#include "peers/etcd_version.h"

#include <gtest/gtest.h>

namespace idetcd::peers {
namespace {

TEST(EtcdVersions, ThoseWithDefectsAreKnown) {
  const auto defects = [](std::string_view version) {
    const std::string text = defectsOf(version);
    return text.empty() ? 0 : 1 + std::ranges::count(text, ';');
  };
  for (const auto& [version, expected] : {std::pair("3.3.25", 1),
                                          {"2.3.8", 1},
                                          {"3.4.22", 4},
                                          {"3.4.23", 3},
                                          {"3.4.30", 2},
                                          {"3.4.37", 2},
                                          {"3.4.38", 1},
                                          {"3.4.42", 0},
                                          {"3.5.10", 3},
                                          {"3.5.16", 2},
                                          {"3.5.23", 1},
                                          {"3.5.28", 0},
                                          {"3.6.0", 2},
                                          {"3.6.5", 1},
                                          {"3.6.9", 0},
                                          {"3.7.0", 0},
                                          {"4.0.0", 0},
                                          {"", 0}})
    EXPECT_EQ(defects(version), expected) << version;
}

}  // namespace
}  // namespace idetcd::peers
