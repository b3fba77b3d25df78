#include "base/block_pool.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace idetcd {
namespace {

TEST(BlockPool, GivesOutAgainWhatItWasGivenBack) {
  BlockPool pool(2);
  void* a = pool.take(100);
  void* b = pool.take(100);
  void* c = pool.take(100);
  for (void* block : {a, b, c}) pool.give(block, 100);
  EXPECT_EQ(pool.kept(), 2u);
  EXPECT_EQ(pool.take(100), b);
  EXPECT_EQ(pool.take(100), a);
  EXPECT_EQ(pool.kept(), 0u);
  pool.give(a, 100);
  pool.give(b, 100);
}

TEST(BlockPool, KeepsOneSizeOnly) {
  BlockPool pool;
  void* large = pool.take(100);
  void* small = pool.take(50);
  pool.give(small, 50);
  EXPECT_EQ(pool.kept(), 0u);
  pool.give(large, 100);
  EXPECT_EQ(pool.kept(), 1u);
  void* other = pool.take(60);
  EXPECT_EQ(pool.kept(), 1u);
  pool.give(other, 60);
}

TEST(BlockPool, SharedObjects) {
  BlockPool pool;
  const void* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    const auto text = std::allocate_shared<std::string>(PoolAllocator<std::string>(pool), 100, 'x');
    EXPECT_EQ(text->size(), 100u);
    EXPECT_EQ(pool.kept(), 0u);
    if (first == nullptr) first = text.get();
    EXPECT_EQ(text.get(), first);
  }
  EXPECT_EQ(pool.kept(), 1u);
}

}  // namespace
}  // namespace idetcd
