#include "records/record_table.h"

#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "table_support.h"

namespace idetcd::records {
namespace {

using test::find;
using test::name;
using test::numbered;

class RecordTableTest : public ::testing::Test {
 protected:
  void put(const dns::Name& owner, int64_t revision) {
    table_.put(EntryBuilder(owner.wire(), revision).build(table_.arena(), 0));
  }
  int64_t revision(const dns::Name& owner) const {
    const Entry* entry = find(table_, owner);
    return entry == nullptr ? 0 : entry->modRevision();
  }

  EpochDomain epochs_;
  RecordTable table_{epochs_, 4711};
};

TEST_F(RecordTableTest, Empty) {
  EXPECT_EQ(table_.size(), 0u);
  EXPECT_EQ(find(table_, numbered(1)), nullptr);
  EXPECT_EQ(find(table_, dns::Name()), nullptr);
  EXPECT_EQ(table_.findForWrite(numbered(1).wire()), nullptr);
  EXPECT_FALSE(table_.erase(numbered(1).wire()));
  table_.forEach([](const Entry&) { FAIL(); });
}

TEST_F(RecordTableTest, PutFindReplaceErase) {
  put(numbered(1), 1);
  put(numbered(2), 2);
  EXPECT_EQ(table_.size(), 2u);
  EXPECT_EQ(revision(numbered(1)), 1);
  EXPECT_EQ(table_.findForWrite(numbered(2).wire()), find(table_, numbered(2)));
  put(numbered(1), 3);
  EXPECT_EQ(table_.size(), 2u);
  EXPECT_EQ(revision(numbered(1)), 3);
  EXPECT_TRUE(table_.erase(numbered(1).wire()));
  EXPECT_FALSE(table_.erase(numbered(1).wire()));
  EXPECT_EQ(table_.size(), 1u);
  EXPECT_EQ(revision(numbered(1)), 0);
  EXPECT_EQ(revision(numbered(2)), 2);
}

TEST_F(RecordTableTest, TheHashIsAHintTheNameDecides) {
  put(numbered(1), 1);
  const uint64_t hash = hashBytes(numbered(1).data(), numbered(1).size(), table_.seed());
  EXPECT_NE(table_.find(hash, numbered(1).wire()), nullptr);
  EXPECT_EQ(table_.find(hash, numbered(2).wire()), nullptr);
  EXPECT_EQ(table_.find(hash, dns::Name().wire()), nullptr);
  // Tag 0 is the tag of empty slots and tombstones too.
  EXPECT_EQ(table_.find(hash & 0xffffffffffff, numbered(1).wire()), nullptr);
  for (uint64_t bucket = 0; bucket < 16; ++bucket) {
    EXPECT_EQ(table_.find(bucket, numbered(1).wire()), nullptr);
    table_.prefetchBucket(bucket);
    table_.prefetchEntry(bucket);
  }
}

TEST_F(RecordTableTest, AReplacedEntryLivesAsLongAsItsReader) {
  EpochDomain::Reader reader(epochs_);
  put(numbered(1), 1);
  const ReadSection section(reader);
  const Entry* before = find(table_, numbered(1));
  for (int64_t i = 2; i < 1000; ++i) put(numbered(1), i);
  EXPECT_NE(find(table_, numbered(1)), before);
  EXPECT_EQ(before->modRevision(), 1);
  EXPECT_TRUE(before->isNamed(numbered(1).wire()));
}

TEST_F(RecordTableTest, ADirectoryLivesAsLongAsItsReader) {
  EpochDomain::Reader reader(epochs_);
  put(numbered(0), 1);
  const ReadSection section(reader);
  const Entry* before = find(table_, numbered(0));
  for (size_t i = 1; i < 20000; ++i) put(numbered(i), 1);
  EXPECT_EQ(find(table_, numbered(0)), before);  // growth moves no entry
  EXPECT_GT(epochs_.reclaim(), 0u);
}

TEST_F(RecordTableTest, GrowthFreesOldDirectoriesAtOnce) {
  for (size_t i = 0; i < 20000; ++i) {
    put(numbered(i), 1);
    ASSERT_EQ(epochs_.reclaim(), 0u);
  }
}

TEST_F(RecordTableTest, ReservedRoomIsWhatGrowthMakes) {
  constexpr size_t kNames = 20000;
  RecordTable reserved(epochs_, 4711);
  reserved.reserve(kNames);
  const size_t bytes = reserved.bytes();
  for (size_t i = 0; i < kNames; ++i) put(numbered(i), 1);
  EXPECT_EQ(bytes, table_.bytes() - table_.arena().bytes());
  for (size_t i = 0; i < kNames; ++i)
    reserved.put(EntryBuilder(numbered(i).wire(), 1).build(reserved.arena(), 0));
  EXPECT_EQ(reserved.bytes() - reserved.arena().bytes(), bytes) << "it did not grow";
  for (size_t i = 0; i < kNames; ++i) ASSERT_NE(find(reserved, numbered(i)), nullptr);
  table_.reserve(1);
  EXPECT_EQ(table_.bytes() - table_.arena().bytes(), bytes) << "nor does it shrink";
}

TEST_F(RecordTableTest, ForEachVisitsEachOnce) {
  for (size_t i = 0; i < 3000; ++i) put(numbered(i), 1);
  for (size_t i = 0; i < 3000; i += 3) table_.erase(numbered(i).wire());
  std::set<std::string> seen;
  table_.forEach([&](const Entry& entry) { EXPECT_TRUE(seen.insert(test::text(entry.name())).second); });
  EXPECT_EQ(seen.size(), 2000u);
}

// 200,000 names, a million operations (fewer under a sanitizer), against a model.
TEST_F(RecordTableTest, AgreesWithAModel) {
  constexpr size_t kNames = 200000 / test::kSlowdown;
  std::mt19937 random(5);
  std::vector<dns::Name> names;
  for (size_t i = 0; i < kNames; ++i) names.push_back(numbered(i));
  std::unordered_map<size_t, int64_t> model;
  const auto check = [&](size_t i) {
    const auto expected = model.find(i);
    return revision(names[i]) == (expected == model.end() ? 0 : expected->second);
  };
  int64_t next_revision = 0;
  // Phases that mostly add, mostly remove, and churn.
  for (const unsigned put_percent : {95u, 50u, 10u, 50u, 90u}) {
    for (size_t operation = 0; operation < kNames; ++operation) {
      const size_t i = random() % kNames;
      if (random() % 100 < put_percent) {
        put(names[i], ++next_revision);
        model[i] = next_revision;
      } else {
        ASSERT_EQ(table_.erase(names[i].wire()), model.erase(i) == 1);
      }
      ASSERT_TRUE(check(i));
      ASSERT_TRUE(check(random() % kNames));
    }
    ASSERT_EQ(table_.size(), model.size());
    for (size_t i = 0; i < kNames; ++i) ASSERT_TRUE(check(i)) << i;
  }
  for (size_t i = 0; i < kNames; ++i) table_.erase(names[i].wire());
  EXPECT_EQ(table_.size(), 0u);
  table_.forEach([](const Entry&) { FAIL(); });
}

// A window of names moves on and on: every slot becomes a tombstone many times over.
TEST_F(RecordTableTest, TombstonesAreClearedAway) {
  constexpr size_t kWindow = 90;  // of the 128 slots of the smallest table
  for (size_t i = 0; i < 30000 / test::kSlowdown; ++i) {
    put(numbered(i), 1);
    if (i < kWindow) continue;
    ASSERT_TRUE(table_.erase(numbered(i - kWindow).wire()));
    ASSERT_EQ(revision(numbered(i - kWindow)), 0);
    for (size_t live = i - kWindow + 1; live <= i; live += 7) ASSERT_EQ(revision(numbered(live)), 1) << live;
  }
  EXPECT_EQ(table_.size(), kWindow);
}

TEST_F(RecordTableTest, FullBucketsThatEmptyAndFillAgain) {
  for (int round = 0; round < 50; ++round) {
    for (size_t i = 0; i < 80; ++i) put(numbered(i), round + 1);
    for (size_t i = 0; i < 80; ++i) ASSERT_EQ(revision(numbered(i)), round + 1);
    for (size_t i = 0; i < 80; i += 2) ASSERT_TRUE(table_.erase(numbered(i).wire()));
    for (size_t i = 0; i < 80; ++i) ASSERT_EQ(revision(numbered(i)), i % 2 == 0 ? 0 : round + 1);
  }
}

// Names that share their home bucket until the table has 4,096 of them: the probe is bounded, so it grows out of turn.
TEST_F(RecordTableTest, TooManyNamesForOneHomeBucketGrowTheTable) {
  std::vector<dns::Name> names;
  for (size_t i = 0; names.size() < 200; ++i) {
    const dns::Name candidate = numbered(i);
    if ((hashBytes(candidate.data(), candidate.size(), table_.seed()) & 0xfff) == 0xffe) names.push_back(candidate);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    put(names[i], static_cast<int64_t>(i) + 1);
    if (i % 8 != 7) continue;
    for (size_t j = 0; j <= i; ++j) ASSERT_EQ(revision(names[j]), static_cast<int64_t>(j) + 1) << i;
  }
  for (const dns::Name& owner : names) EXPECT_TRUE(table_.erase(owner.wire()));
  EXPECT_EQ(table_.size(), 0u);
}

TEST(RecordTable, TwoTablesShareADomain) {
  EpochDomain epochs;
  EpochDomain::Reader reader(epochs);
  RecordTable one(epochs, 1);
  {
    RecordTable other(epochs, 2);
    for (int64_t i = 1; i < 500; ++i) {
      one.put(EntryBuilder(numbered(7).wire(), i).build(one.arena(), 0));
      other.put(EntryBuilder(numbered(7).wire(), -i).build(other.arena(), 0));
    }
    const ReadSection section(reader);
    EXPECT_EQ(find(one, numbered(7))->modRevision(), 499);
    EXPECT_EQ(find(other, numbered(7))->modRevision(), -499);
  }
  EXPECT_EQ(find(one, numbered(7))->modRevision(), 499);
}

}  // namespace
}  // namespace idetcd::records
