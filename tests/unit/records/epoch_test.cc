#include "records/epoch.h"

#include <atomic>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::records {
namespace {

using Freed = std::vector<int>;

void noteFreed(void* owner, void* object) { static_cast<Freed*>(owner)->push_back(*static_cast<int*>(object)); }

class EpochTest : public ::testing::Test {
 protected:
  void retire(int& object) { domain_.retire(noteFreed, &freed_, &object); }

  Freed freed_;
  EpochDomain domain_;
  int one_ = 1, two_ = 2, three_ = 3;
};

TEST_F(EpochTest, WithoutReadersAllIsDueAtOnce) {
  retire(one_);
  EXPECT_TRUE(freed_.empty());  // not before reclaim()
  EXPECT_EQ(domain_.reclaim(), 0u);
  EXPECT_EQ(freed_, Freed{1});
  EXPECT_EQ(domain_.reclaim(), 0u);
  EXPECT_EQ(freed_, Freed{1});  // once
}

TEST_F(EpochTest, AReaderInsideHoldsBackWhatIsRetiredMeanwhile) {
  EpochDomain::Reader reader(domain_);
  {
    const ReadSection section(reader);
    retire(one_);
    EXPECT_EQ(domain_.reclaim(), 1u);
    retire(two_);
    EXPECT_EQ(domain_.reclaim(), 2u);
    EXPECT_TRUE(freed_.empty());
  }
  EXPECT_EQ(domain_.reclaim(), 0u);
  EXPECT_EQ(freed_, (Freed{1, 2}));
}

TEST_F(EpochTest, AReaderThatEnteredLaterHoldsNothingBack) {
  EpochDomain::Reader reader(domain_);
  retire(one_);
  const ReadSection section(reader);
  EXPECT_EQ(domain_.reclaim(), 0u);
  EXPECT_EQ(freed_, Freed{1});
}

TEST_F(EpochTest, AReaderOutsideHoldsNothingBack) {
  EpochDomain::Reader never_entered(domain_);
  EpochDomain::Reader reader(domain_);
  { const ReadSection section(reader); }
  retire(one_);
  EXPECT_EQ(domain_.reclaim(), 0u);
}

TEST_F(EpochTest, TheOldestReaderDecides) {
  EpochDomain::Reader a(domain_), b(domain_), c(domain_);
  a.enter();
  retire(one_);
  b.enter();
  retire(two_);
  c.enter();
  retire(three_);
  EXPECT_EQ(domain_.reclaim(), 3u);
  b.leave();
  EXPECT_EQ(domain_.reclaim(), 3u);  // a may hold all of them
  a.leave();
  EXPECT_EQ(domain_.reclaim(), 1u);  // c entered after two was retired
  EXPECT_EQ(freed_, (Freed{1, 2}));
  c.leave();
  EXPECT_EQ(domain_.reclaim(), 0u);
  EXPECT_EQ(freed_, (Freed{1, 2, 3}));
}

TEST_F(EpochTest, EnteringAgainLetsGo) {
  EpochDomain::Reader reader(domain_);
  reader.enter();
  retire(one_);
  reader.leave();
  reader.enter();
  EXPECT_EQ(domain_.reclaim(), 0u);
  reader.leave();
}

TEST_F(EpochTest, AReaderThatIsDestroyedInsideLetsGo) {
  {
    EpochDomain::Reader reader(domain_);
    reader.enter();
    retire(one_);
    EXPECT_EQ(domain_.reclaim(), 1u);
  }
  EXPECT_EQ(domain_.reclaim(), 0u);
}

TEST_F(EpochTest, ManyReadersComeAndGo) {
  std::list<EpochDomain::Reader> readers;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 100; ++i) readers.emplace_back(domain_).enter();
    retire(one_);
    while (readers.size() > 1) {
      EXPECT_EQ(domain_.reclaim(), 1u);
      readers.pop_back();
    }
    readers.clear();
    EXPECT_EQ(domain_.reclaim(), 0u);
  }
  EXPECT_EQ(freed_, (Freed{1, 1, 1}));
}

TEST(Epoch, TheDomainRunsWhatIsLeft) {
  Freed freed;
  int object = 5;
  { EpochDomain().retire(noteFreed, &freed, &object); }
  EXPECT_EQ(freed, Freed{5});
}

TEST(Epoch, WhatFreeIsGivenIsWhatWasRetired) {
  EpochDomain domain;
  for (int i = 0; i < 1000; ++i) {
    domain.retire([](void*, void* object) { delete static_cast<int*>(object); }, nullptr, new int(i));
    if (i % 7 == 0) domain.reclaim();
  }
}

// One pointer, replaced and freed without a pause, under readers that look at it without a pause.
TEST(Epoch, NothingIsFreedUnderAReader) {
  struct Object {
    explicit Object(uint64_t number) : value(number), copy(~number) {}
    ~Object() { value = copy = 0; }
    uint64_t value, copy;
  };
  constexpr int kReaders = 3;
  constexpr uint64_t kObjects = 60000;
  EpochDomain domain;
  std::atomic<Object*> shared{new Object(1)};
  std::atomic<bool> done{false};
  std::atomic<int> started{0};
  std::atomic<uint64_t> broken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kReaders; ++i) {
    threads.emplace_back([&] {
      EpochDomain::Reader reader(domain);
      started.fetch_add(1);
      uint64_t last = 0;
      while (!done.load(std::memory_order_relaxed)) {
        const ReadSection section(reader);
        for (int look = 0; look < 8; ++look) {
          const Object* object = shared.load(std::memory_order_seq_cst);
          const uint64_t value = object->value;
          if (value != ~object->copy || value < last) broken.fetch_add(1);
          last = value;
        }
      }
    });
  }
  while (started.load() < kReaders) std::this_thread::yield();
  for (uint64_t number = 2; number < kObjects; ++number) {
    Object* old = shared.exchange(new Object(number), std::memory_order_seq_cst);
    domain.retire([](void*, void* object) { delete static_cast<Object*>(object); }, nullptr, old);
    if (number % 16 == 0) domain.reclaim();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken.load(), 0u);
  EXPECT_EQ(domain.reclaim(), 0u);
  delete shared.load();
}

}  // namespace
}  // namespace idetcd::records
