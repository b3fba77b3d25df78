#include "naming/watched_ranges.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::naming {
namespace {

std::vector<std::pair<std::string, std::string>> rangesOf(const std::vector<std::string>& words,
                                                          const std::string& pattern = "worker{{.ID}}.tf.local.") {
  std::vector<std::pair<std::string, std::string>> found;
  for (const store::KeyRange& range : watchedRanges(words, slots::NamePattern::parse(pattern, 5).value()))
    found.emplace_back(range.begin, range.end);
  return found;
}
using Ranges = std::vector<std::pair<std::string, std::string>>;
const std::string kEnd(1, '\0');

TEST(WatchedRanges, EveryNameByDefault) { EXPECT_EQ(rangesOf({}), (Ranges{{"0", kEnd}})); }

TEST(WatchedRanges, ThePatternsNamesAreAlwaysAmongThem) {
  EXPECT_EQ(rangesOf({"pattern"}), (Ranges{{"worker", "workes"}}));
  EXPECT_EQ(rangesOf({"db"}), (Ranges{{"db", "dc"}, {"worker", "workes"}}));
  EXPECT_EQ(rangesOf({"pattern"}, "{{.ID}}.tf.local."), (Ranges{{"0", kEnd}}));
}

TEST(WatchedRanges, WhatOverlapsOrTouchesIsOne) {
  EXPECT_EQ(rangesOf({"work", "worker1", "a:f", "c:k", "k"}), (Ranges{{"a", "l"}, {"work", "worl"}}));
  EXPECT_EQ(rangesOf({"a:z"}), (Ranges{{"a", "z"}}));
}

TEST(WatchedRanges, OnlyWhatNamesBeginWith) {
  for (const char* good : {"a", "db.", "0", "_x", "a:b", "a-b.c:a-c"}) EXPECT_TRUE(parseWatchedRange(good)) << good;
  for (const char* bad :
       {"", "A", "/registry", "a/b", ":", "a:", ":b", "b:a", "a:a", "-a", ".", "a b", "a:b:c", "a:a-", "\xff"})
    EXPECT_FALSE(parseWatchedRange(bad)) << bad;
  EXPECT_FALSE(parseWatchedRange(std::string(256, 'a')));
}

}  // namespace
}  // namespace idetcd::naming
