#include "net/descriptor_budget.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

namespace idetcd::net {
namespace {

using Use = DescriptorUse;

size_t takeAll(DescriptorAccount& account, Use use) {
  size_t count = 0;
  while (account.take(use)) ++count;
  return count;
}

TEST(DescriptorBudget, EachUseHasAGuaranteedPart) {
  const auto budget = DescriptorBudget::make(80);
  const auto account = budget->account(0);
  EXPECT_EQ(takeAll(*account, Use::kClient), 80u - 20 - 10);
  EXPECT_EQ(takeAll(*account, Use::kDatagram), 20u);
  EXPECT_EQ(takeAll(*account, Use::kUpstream), 10u);
  EXPECT_EQ(budget->used(), 80u);
}

TEST(DescriptorBudget, WhatIsGivenBackIsForWhoeverComes) {
  const auto budget = DescriptorBudget::make(80);
  const auto account = budget->account(0);
  ASSERT_EQ(takeAll(*account, Use::kClient), 50u);
  ASSERT_EQ(takeAll(*account, Use::kDatagram), 20u);
  account->give(Use::kClient);
  EXPECT_TRUE(account->take(Use::kDatagram));
  EXPECT_FALSE(account->take(Use::kDatagram));
  EXPECT_FALSE(account->take(Use::kClient));
  EXPECT_EQ(takeAll(*account, Use::kUpstream), 10u) << "still guaranteed";
  for (int i = 0; i < 49; ++i) account->give(Use::kClient);
  for (int i = 0; i < 21; ++i) account->give(Use::kDatagram);
  for (int i = 0; i < 10; ++i) account->give(Use::kUpstream);
  EXPECT_EQ(budget->used(), 0u);
  EXPECT_EQ(takeAll(*account, Use::kClient), 50u);
}

TEST(DescriptorBudget, NoLoopIsLeftWithout) {
  const auto budget = DescriptorBudget::make(80);
  const auto first = budget->account(0);
  const auto second = budget->account(1);
  EXPECT_EQ(takeAll(*first, Use::kDatagram), 80u - 30 - 10);
  EXPECT_EQ(takeAll(*second, Use::kDatagram), 10u);
  EXPECT_EQ(takeAll(*second, Use::kClient), 10u);
  EXPECT_EQ(takeAll(*first, Use::kClient), 10u);
}

TEST(DescriptorBudget, ATotalThatShrinksIsReachedByAndBy) {
  const auto budget = DescriptorBudget::make(80);
  const auto account = budget->account(0);
  ASSERT_EQ(takeAll(*account, Use::kClient), 50u);
  budget->resize(40);  // ten and five are guaranteed to the others
  EXPECT_FALSE(account->take(Use::kClient));
  for (int i = 0; i < 25; ++i) account->give(Use::kClient);
  EXPECT_FALSE(account->take(Use::kClient));
  account->give(Use::kClient);
  EXPECT_TRUE(account->take(Use::kClient));
  budget->resize(80);
  EXPECT_EQ(takeAll(*account, Use::kClient), 25u);
}

struct Keeper : IdleDescriptors {
  Keeper(DescriptorAccount& owner, Use kind) : account(owner), use(kind) { account.add(*this, use); }
  ~Keeper() override { account.remove(*this); }
  bool closeIdle() override {
    if (idle == 0) return false;
    --idle;
    account.give(use);
    return true;
  }
  void keep(size_t count) {
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(account.take(use));
    idle += count;
  }
  DescriptorAccount& account;
  Use use;
  size_t idle = 0;
};

TEST(DescriptorBudget, IdleOnesGiveWayAsFarAsThatHelps) {
  const auto budget = DescriptorBudget::make(80);
  const auto account = budget->account(0);
  Keeper keeper(*account, Use::kDatagram);
  keeper.keep(30);
  EXPECT_EQ(takeAll(*account, Use::kClient), 50u);
  EXPECT_EQ(keeper.idle, 20u) << "these belong to no other use";
  EXPECT_TRUE(account->take(Use::kDatagram)) << "but for one of their own kind";
  EXPECT_EQ(keeper.idle, 19u);
}

TEST(DescriptorBudget, ALeaseGivesBack) {
  const auto budget = DescriptorBudget::make(80);
  DescriptorLease lease = budget->account(0)->lease(Use::kUpstream);
  EXPECT_TRUE(lease);
  DescriptorLease moved = std::move(lease);
  EXPECT_EQ(budget->used(), 1u);
  moved.reset();
  EXPECT_FALSE(moved);
  EXPECT_EQ(budget->used(), 0u);
}

TEST(DescriptorBudget, WhatIsReservedIsNotGranted) {
  const auto budget = DescriptorBudget::make(100);
  const auto account = budget->account(0);
  auto first = budget->reserve(40);
  auto second = budget->reserve(30);
  EXPECT_EQ(budget->total(), 30u);
  size_t taken = 0;
  while (account->take(Use::kClient)) ++taken;
  EXPECT_LE(taken, 30u);
  first.reset();
  EXPECT_EQ(budget->total(), 70u);
  EXPECT_TRUE(account->take(Use::kClient));
  budget->resize(80);
  EXPECT_EQ(budget->total(), 50u);
  second.reset();
  EXPECT_EQ(budget->total(), 80u);
}

TEST(DescriptorBudget, WhatIsReservedLeavesTheLeast) {
  const auto budget = DescriptorBudget::make(100);
  const auto reserved = budget->reserve(1000);
  EXPECT_EQ(budget->total(), 16u);
}

TEST(DescriptorBudget, IsWhatTheLimitLeavesBesideWhatIsOpen) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 512, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto budget = DescriptorBudget::unlimited();
  const auto account = budget->account(0);
  budget->fitToProcess();
  const size_t total = budget->total();
  const size_t left = freeDescriptors();
  EXPECT_LT(total, left);
  EXPECT_GT(total, left / 2);
  std::vector<int> open;
  for (int i = 0; i < 100; ++i) open.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  budget->fitToProcess();
  EXPECT_EQ(budget->total(), total - 100);
  EXPECT_EQ(freeDescriptors(), left - 100);
  for (size_t i = 0; i < open.size(); ++i) ASSERT_TRUE(account->take(Use::kClient));  // they are of the budget
  budget->fitToProcess();
  EXPECT_EQ(budget->total(), total);
  for (const int fd : open) ::close(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace idetcd::net
