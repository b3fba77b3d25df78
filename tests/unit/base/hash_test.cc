#include "base/hash.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

TEST(Hash, DependsOnEveryByteAndOnTheSeed) {
  const std::string text = "\x07worker1\x02tf\x05local";
  std::set<uint64_t> seen{hashBytes(text.data(), text.size(), 1)};
  EXPECT_TRUE(seen.insert(hashBytes(text.data(), text.size(), 2)).second);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_TRUE(seen.insert(hashBytes(changed.data(), changed.size(), 1)).second) << i;
    EXPECT_TRUE(seen.insert(hashBytes(text.data(), i, 1)).second) << "length " << i;
  }
}

TEST(Hash, IsAFunction) {
  const std::string text(300, 'x');
  const std::string same = text;
  EXPECT_EQ(hashBytes(text.data(), text.size(), 42), hashBytes(same.data(), same.size(), 42));
}

TEST(Hash, SeedsAreDrawnAnew) { EXPECT_NE(randomHashSeed(), randomHashSeed()); }

}  // namespace
}  // namespace idetcd
