#include "store/store.h"

#include <string>

#include <gtest/gtest.h>

#include "store/transaction.h"

namespace idetcd::store {
namespace {

TEST(KeyRangeTest, PrefixCountsTheLastOctetUp) {
  EXPECT_EQ(KeyRange::prefix("ab").end, "ac");
  EXPECT_EQ(KeyRange::prefix("a\xff").end, "b");
  EXPECT_EQ(KeyRange::prefix("\xff\xff").end, std::string(1, '\0'));
  EXPECT_EQ(KeyRange::prefix("").begin, std::string(1, '\0'));
  EXPECT_EQ(KeyRange::prefix("").end, std::string(1, '\0'));
  EXPECT_EQ(KeyRange::single("ab").end, "");
}

RangeOp readOf(const char* key) { return {KeyRange::single(key), {}}; }

RangeResult counting(int64_t count) {
  RangeResult made;
  made.count = count;
  return made;
}

TEST(TransactionTest, AResultIsThatOfItsReadInEitherBranch) {
  Transaction transaction;
  transaction.require({.key = "a", .target = Compare::Target::kModRevision, .number = 1});
  transaction.put({"a", "value", 0});
  const Transaction::Read both = transaction.read(readOf("b"), Transaction::Branch::kBoth);
  const Transaction::Read failed = transaction.read(readOf("c"), Transaction::Branch::kFailure);
  EXPECT_EQ(transaction.request().success.size(), 2u);
  EXPECT_EQ(transaction.request().failure.size(), 2u);

  TxnResult success{.succeeded = true, .results = {PutResult{}, counting(3)}};
  ASSERT_TRUE(transaction.fits(success));
  EXPECT_EQ(transaction.result(success, both).count, 3);
  TxnResult failure{.succeeded = false, .results = {counting(4), counting(5)}};
  ASSERT_TRUE(transaction.fits(failure));
  EXPECT_EQ(transaction.result(failure, both).count, 4);
  EXPECT_EQ(transaction.result(failure, failed).count, 5);
}

TEST(TransactionTest, AnAnswerToAnotherQuestionDoesNotFit) {
  Transaction transaction;
  transaction.put({"a", "value", 0});
  (void)transaction.read(readOf("b"));
  EXPECT_FALSE(transaction.fits({.succeeded = true, .results = {PutResult{}}}));
  EXPECT_FALSE(transaction.fits({.succeeded = true, .results = {counting(1), PutResult{}}}));
}

TEST(TransactionTest, WhatRequiresNothingCannotFail) {
  Transaction transaction;
  (void)transaction.read(readOf("b"), Transaction::Branch::kBoth);
  EXPECT_TRUE(transaction.request().failure.empty());
}

}  // namespace
}  // namespace idetcd::store
