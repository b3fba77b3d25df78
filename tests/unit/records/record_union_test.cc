#include "records/record_union.h"

#include <string>

#include <gtest/gtest.h>

#include "table_support.h"

namespace idetcd::records {
namespace {

using namespace std::chrono_literals;

HostAddresses host(uint8_t last) { return {.ipv4 = IpAddress::v4({10, 0, 0, last}), .ipv6 = {}}; }

class RecordUnionTest : public testing::Test {
 protected:
  static RecordStore::Options options() {
    RecordStore::Options made{.zone = test::name("tf.local."), .ttl_seconds = 5, .addresses = {}, .hash_seed = 99};
    made.is_member = [](const dns::Name&) { return true; };
    return made;
  }
  void unite(RecordUnion::Second counts) {
    both_ = std::make_unique<RecordUnion>(epochs_, options(), first_, second_, counts);
    both_->begin();
  }
  // The last byte of each address; "-": there is no such name.
  std::string at(int number) const {
    const Entry* entry = test::find(both_->sum().table(), test::numbered(static_cast<size_t>(number)));
    if (entry == nullptr) return "-";
    std::string found;
    entry->visitRecords([&found](dns::RrType, uint32_t, Rdata rdata) {
      found += (found.empty() ? "" : " ") + std::to_string(rdata.back());
    });
    return found;
  }
  Freshness freshness() const { return both_->sum().freshness(); }

  EpochDomain epochs_;
  RecordStore first_{epochs_, options()};
  RecordStore second_{epochs_, options()};
  std::unique_ptr<RecordUnion> both_;
};

TEST_F(RecordUnionTest, HasTheNamesOfBothOnce) {
  first_.put(test::numbered(1), host(1), 700);
  second_.put(test::numbered(1), host(1), 5);
  first_.put(test::numbered(2), host(2), 701);
  unite(RecordUnion::Second::kNeeded);
  second_.put(test::numbered(3), host(3), 6);
  EXPECT_EQ(at(1), "1");
  EXPECT_EQ(at(2), "2");
  EXPECT_EQ(at(3), "3");
  EXPECT_EQ(both_->sum().memberCount(), 3u);
  first_.remove(test::numbered(1), 702);
  EXPECT_EQ(at(1), "1") << "the second has it";
  second_.remove(test::numbered(1), 7);
  EXPECT_EQ(at(1), "-");
  EXPECT_EQ(both_->sum().memberCount(), 2u);
  second_.put(test::numbered(3), host(4), 8);
  EXPECT_EQ(at(3), "4");
}

TEST_F(RecordUnionTest, RevisionsOfAStoreThatWasSetBackAreNoMatter) {
  first_.put(test::numbered(1), host(1), 700);
  unite(RecordUnion::Second::kNeeded);
  first_.beginSnapshot(SourceHistory::Revisions::kRestarted);
  first_.put(test::numbered(1), host(2), 3);
  first_.endSnapshot(3);
  EXPECT_EQ(at(1), "2");
}

TEST_F(RecordUnionTest, IsAsFreshAsBoth) {
  const auto now = BootClock::now();
  unite(RecordUnion::Second::kNeeded);
  EXPECT_EQ(freshness(), Freshness::kLoading);
  first_.setFreshUntil(now + 1h);
  EXPECT_EQ(freshness(), Freshness::kLoading) << "a name may be in the second only";
  second_.setFreshUntil(now + 2h);
  EXPECT_EQ(freshness(), Freshness::kFresh);
  EXPECT_EQ(both_->sum().freshUntil(), now + 1h);
  second_.setFreshness(Freshness::kStale);
  EXPECT_EQ(freshness(), Freshness::kStale);
  second_.setFreshUntil(now + 2h);
  EXPECT_EQ(freshness(), Freshness::kFresh);
  first_.setFreshness(Freshness::kFromFile);
  EXPECT_EQ(freshness(), Freshness::kFromFile);
}

TEST_F(RecordUnionTest, ASecondThatNobodyHasGoneToCountsOnceItIsFresh) {
  const auto now = BootClock::now();
  first_.setFreshUntil(now + 1h);
  unite(RecordUnion::Second::kOnceFresh);
  EXPECT_EQ(freshness(), Freshness::kFresh);
  second_.setFreshUntil(now + 1h);
  second_.setFreshness(Freshness::kStale);
  EXPECT_EQ(freshness(), Freshness::kStale);
}

TEST_F(RecordUnionTest, HearsNothingAfterItsEnd) {
  unite(RecordUnion::Second::kNeeded);
  both_->end();
  first_.put(test::numbered(1), host(1), 1);
  second_.setAddresses({IpAddress::v4({192, 0, 2, 1})});
  EXPECT_EQ(at(1), "-");
}

}  // namespace
}  // namespace idetcd::records
