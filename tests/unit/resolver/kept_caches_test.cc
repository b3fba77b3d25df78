#include "resolver/kept_caches.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "net/event_loop.h"
#include "records/epoch.h"

namespace idetcd::resolver {
namespace {

class KeptCachesTest : public ::testing::Test {
 protected:
  // That of a block in the configuration that is being made.
  KeptCaches::Found of(const KeptCaches::Block& block, size_t worker = 0) {
    return caches_.of(block, worker, loop_, {}, {});
  }

  const KeptCaches::Block kPlain{.name = ".:53", .rules = {}};
  const KeptCaches::Block kFiltered{.name = ".:53", .rules = "private"};
  records::EpochDomain epochs_;
  net::EventLoop loop_;
  resolve::Process process_{Logger(), loop_, epochs_};
  KeptCaches& caches_ = process_.state<KeptCaches>();
};

TEST_F(KeptCachesTest, ABlockHasTheCacheThatItHadBefore) {
  const auto first = of(kPlain);
  const auto other_worker = of(kPlain, 1);
  const auto other_block = of({.name = "a.:53", .rules = {}});
  EXPECT_TRUE(first.is_new && other_worker.is_new && other_block.is_new);
  caches_.accept();
  const auto second = of(kPlain);
  EXPECT_FALSE(second.is_new);
  EXPECT_EQ(second.cache, first.cache);
  EXPECT_EQ(of(kPlain, 1).cache, other_worker.cache);
  EXPECT_EQ(of({.name = "a.:53", .rules = {}}).cache, other_block.cache);
}

TEST_F(KeptCachesTest, OtherRulesBeginAnew) {
  const auto first = of(kPlain);
  caches_.accept();
  const auto second = of(kFiltered);
  EXPECT_TRUE(second.is_new);
  caches_.accept();
  EXPECT_EQ(of(kFiltered).cache, second.cache);
  EXPECT_TRUE(of(kPlain).is_new);
}

TEST_F(KeptCachesTest, ARefusedReloadLeavesTheCacheThatIsInUse) {
  const auto first = of(kPlain);
  caches_.accept();
  EXPECT_TRUE(of(kFiltered).is_new);
  caches_.refuse();
  const auto again = of(kPlain);
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.cache, first.cache);
}

TEST_F(KeptCachesTest, ACacheThatNobodyUsesHasGone) {
  of(kPlain);
  caches_.accept();
  EXPECT_TRUE(of(kPlain).is_new);
}

TEST_F(KeptCachesTest, BlocksWithTheSameKeysAreToldApart) {
  caches_.announce(".:53");
  EXPECT_EQ(caches_.nameOf(".:53", {"127.0.0.1"}), ".:53");
  caches_.announce("a.:53");
  EXPECT_EQ(caches_.nameOf(".:53", {"127.0.0.1"}), ".:53");
  caches_.announce(".:53");
  EXPECT_EQ(caches_.nameOf(".:53", {"127.0.0.1", "::1"}), ".:53 on 127.0.0.1 ::1");
  EXPECT_EQ(caches_.nameOf("a.:53", {"127.0.0.1"}), "a.:53");
  caches_.refuse();
  caches_.announce(".:53");
  EXPECT_EQ(caches_.nameOf(".:53", {"127.0.0.1"}), ".:53") << "those of another configuration do not count";
}

}  // namespace
}  // namespace idetcd::resolver
