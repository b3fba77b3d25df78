// Which number a membership has, by what the names show, what goes, and what was noted.
#include "naming/generation_count.h"

#include <gtest/gtest.h>

namespace idetcd::naming {
namespace {

store::KeyValue member(int64_t id, int64_t created, int64_t changed = 0, std::string value = "a") {
  store::KeyValue kv;
  kv.key = fmt::format("worker{}.tf.local.", id);
  kv.value = std::move(value);
  kv.create_revision = created;
  kv.mod_revision = changed > 0 ? changed : created;
  return kv;
}

class GenerationCountTest : public testing::Test {
 protected:
  static GenerationCount made() { return GenerationCount(slots::NamePattern::parse("worker{{.ID}}.tf.local.", 10).value()); }
  // What is missing was there before.
  void read(const std::vector<store::KeyValue>& members, const std::vector<std::string>& missing = {}, int64_t revision = 0,
            bool restarted = false) {
    count_.beginSnapshot(restarted);
    for (const store::KeyValue& kv : members) count_.put(kv, true);
    for (const std::string& name : missing) count_.vanished(name, revision);
    count_.endSnapshot();
  }

  GenerationCount count_ = made();
};

TEST_F(GenerationCountTest, RisesWithWhatComesChangesAndGoes) {
  count_.put(member(1, 10), true);
  EXPECT_EQ(count_.generation(), 10);
  count_.put(member(2, 12), true);
  EXPECT_EQ(count_.generation(), 12);
  count_.put(member(1, 10, 14, "b"), true);
  EXPECT_EQ(count_.generation(), 14);
  count_.remove("worker2.tf.local.", 16);
  EXPECT_EQ(count_.generation(), 16);
  count_.remove("worker2.tf.local.", 18);
  count_.put(member(11, 20), true);
  EXPECT_EQ(count_.generation(), 16) << "neither one that has gone already nor one beyond the limit counts";
}

TEST_F(GenerationCountTest, ARenewalByTheGoPluginIsNoChange) {
  count_.put(member(1, 10), false);
  count_.put(member(1, 10, 14), false);
  EXPECT_EQ(count_.generation(), 10);
  count_.put(member(1, 10, 16, "b"), false);
  EXPECT_EQ(count_.generation(), 16);
  EXPECT_FALSE(count_.isShownBy({})) << "who comes later sees when the key was made";
  EXPECT_TRUE(count_.isShownBy({16, 0}));
}

TEST_F(GenerationCountTest, WhatHasGoneIsToBeNoted) {
  read({member(1, 10), member(2, 12)});
  EXPECT_TRUE(count_.isShownBy({}));
  count_.remove("worker1.tf.local.", 14);
  EXPECT_FALSE(count_.isShownBy({}));
  EXPECT_EQ(count_.note().text(), "14 0");
  EXPECT_TRUE(count_.isShownBy(count_.note()));
}

// Another process of the node comes to the same number, by what it reads.
TEST_F(GenerationCountTest, ARestartGoesOn) {
  read({member(1, 10), member(2, 12)});
  count_.goOnFrom(100);
  count_.remove("worker2.tf.local.", 14);
  const GenerationCount::Note noted = count_.note();
  const int64_t before = count_.generation();
  EXPECT_EQ(before, 103);

  GenerationCount next = made();
  next.beginSnapshot(false);
  next.put(member(1, 10), true);
  next.endSnapshot();
  EXPECT_EQ(next.generation(), 10);
  next.learn(GenerationCount::Note::parse(noted.text()).value());
  EXPECT_EQ(next.generation(), before);
  EXPECT_TRUE(next.isShownBy(noted));
}

TEST_F(GenerationCountTest, AStoreThatWasSetBackHasAnOffset) {
  read({member(1, 10), member(2, 50)});
  const int64_t before = count_.generation();
  EXPECT_EQ(before, 50);
  read({member(1, 10)}, {"worker2.tf.local."}, 20, true);
  count_.settle(true);
  EXPECT_LT(count_.generation(), before) << "nothing of what was before counts";
  count_.goOnFrom(before);
  EXPECT_EQ(count_.generation(), before + 1);
  EXPECT_FALSE(count_.isShownBy({20, 0}));
  EXPECT_TRUE(count_.isShownBy(count_.note()));
  count_.put(member(3, 24), true);
  EXPECT_EQ(count_.generation(), before + 15);
  // That of a claim which the watch has not shown yet has the offset too.
  EXPECT_EQ(count_.generationOf(26), before + 17);
  EXPECT_EQ(count_.generationOf(8), count_.generation());
  // Another node's offset counts.
  count_.learn({24, 1000});
  EXPECT_EQ(count_.generation(), 1024);
}

TEST_F(GenerationCountTest, ANameThatASnapshotLacksWentBeforeIt) {
  read({member(1, 10), member(2, 12), member(3, 13)});
  read({member(1, 10)}, {"worker2.tf.local."}, 20);
  EXPECT_TRUE(count_.isUnsettled());
  EXPECT_EQ(count_.generation(), 13);
  count_.settle(false);
  EXPECT_TRUE(count_.isUnsettled()) << "who has seen it go may not have noted it yet";
  count_.learn({16, 0});
  count_.settle(false);
  EXPECT_FALSE(count_.isUnsettled());
  EXPECT_EQ(count_.generation(), 16);

  read({member(1, 10)}, {"worker3.tf.local."}, 22);
  count_.settle(false);
  count_.settle(true);
  EXPECT_FALSE(count_.isUnsettled());
  EXPECT_EQ(count_.generation(), 22) << "nobody has noted it";
  read({member(1, 10)}, {"worker3.tf.local."}, 24);
  EXPECT_FALSE(count_.isUnsettled()) << "it had gone already";
}

TEST_F(GenerationCountTest, HasExactlyTheMembersThatItWasGiven) {
  const store::KeyValue one = member(1, 10);
  const store::KeyValue two = member(2, 12);
  read({one, two});
  const GenerationCount::Members both{{1, GenerationCount::memberOf(one)}, {2, GenerationCount::memberOf(two)}};
  EXPECT_TRUE(count_.hasExactly(both));
  EXPECT_FALSE(count_.hasExactly({{1, GenerationCount::memberOf(one)}}));
  EXPECT_FALSE(count_.hasExactly({{1, GenerationCount::memberOf(one)}, {3, GenerationCount::memberOf(two)}}));
  count_.put(member(2, 12, 14, "b"), true);
  EXPECT_FALSE(count_.hasExactly(both));
}

TEST_F(GenerationCountTest, CountsNodesOfThisProgram) {
  count_.put(member(1, 10), false);
  count_.put(member(2, 11), true);
  count_.put(member(3, 12), true);
  count_.put(member(5, 13), true);
  EXPECT_EQ(count_.nodesBelow(2, 3), 0u);
  EXPECT_EQ(count_.nodesBelow(5, 3), 2u);
  EXPECT_EQ(count_.nodesBelow(9, 2), 2u);
  EXPECT_EQ(count_.nodesBelow(0, 9), 3u) << "all";
}

TEST(GenerationCount, IdsMayBeFarApart) {
  constexpr int64_t kFar = 1'000'000'007;
  GenerationCount count(slots::NamePattern::parse("worker{{.ID}}.tf.local.", kFar).value());
  for (const int64_t id : {kFar, int64_t{8}, int64_t{7}, int64_t{1}}) count.put(member(id, 10), true);
  EXPECT_EQ(count.nodesBelow(8, 9), 2u);
  EXPECT_EQ(count.nodesBelow(kFar, 9), 3u);
  count.remove("worker8.tf.local.", 11);
  EXPECT_EQ(count.generation(), 11);
  EXPECT_EQ(count.nodesBelow(0, 9), 3u);
  count.remove("worker8.tf.local.", 12);
  EXPECT_EQ(count.generation(), 11) << "it has gone already";
  count.put(member(8, 13), true);
  const auto as = [](int64_t id, int64_t created) { return GenerationCount::memberOf(member(id, created)); };
  EXPECT_TRUE(count.hasExactly({{1, as(1, 10)}, {7, as(7, 10)}, {8, as(8, 13)}, {kFar, as(kFar, 10)}}));
  EXPECT_FALSE(count.hasExactly({{1, as(1, 10)}, {7, as(7, 10)}, {9, as(8, 13)}, {kFar, as(kFar, 10)}}));
}

TEST(GenerationNote, WhatAHandHasWrittenIsNone) {
  EXPECT_EQ(GenerationCount::Note::parse("12 34").value().text(), "12 34");
  EXPECT_EQ(GenerationCount::Note::parse("0 9007199254740991").value().text(), "0 9007199254740991");
  for (const std::string_view text : {"", " ", "x", "7", "7 ", "7 x", "-1 2", "1 -2", "1 2 ", "1x 2", "1 2 3",
                                      "99999999999999999999 0", "0 9007199254740992"}) {
    EXPECT_FALSE(GenerationCount::Note::parse(text)) << text;
  }
}

}  // namespace
}  // namespace idetcd::naming
