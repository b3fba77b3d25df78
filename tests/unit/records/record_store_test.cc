#include "records/record_store.h"

#include <algorithm>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "table_support.h"

namespace idetcd::records {
namespace {

using test::find;
using test::name;
using test::numbered;
using test::rrsetCount;
using Change = RecordStore::Change;

HostAddresses v4(uint8_t last) { return {.ipv4 = IpAddress::v4({10, 0, 0, last}), .ipv6 = {}}; }
std::string v4Octets(uint8_t last) { return {10, 0, 0, static_cast<char>(last)}; }

class RecordStoreTest : public ::testing::Test {
 protected:
  RecordStoreTest() : RecordStoreTest("tf.local.") {}
  explicit RecordStoreTest(std::string_view zone)
      : store_(epochs_, {.zone = name(zone),
                         .ttl_seconds = 5,
                         .addresses = {IpAddress::v4({192, 0, 2, 1}), *IpAddress::parse("2001:db8::1"),
                                       IpAddress::v4({192, 0, 2, 2})},
                         .hash_seed = 99}) {}

  bool exists(std::string_view owner) const { return find(store_.table(), name(owner)) != nullptr; }
  // The bytes of its A; "nodata", "nxdomain".
  std::string a(std::string_view owner) const {
    const Entry* entry = find(store_.table(), name(owner));
    if (entry == nullptr) return "nxdomain";
    return test::rdata(*entry, dns::RrType::kA).value_or("nodata");
  }

  EpochDomain epochs_;
  RecordStore store_;
};

TEST_F(RecordStoreTest, StartsWithItsNameServerAlone) {
  EXPECT_EQ(store_.size(), 0u);
  EXPECT_EQ(store_.serial(), 0u);
  EXPECT_EQ(store_.freshness(), Freshness::kLoading);
  EXPECT_EQ(store_.zone(), name("tf.local."));
  EXPECT_EQ(a("ns.dns.tf.local."), std::string({'\xc0', 0, 2, 1}));
  EXPECT_EQ(test::rdata(*find(store_.table(), name("ns.dns.tf.local.")), dns::RrType::kAaaa),
            test::text({IpAddress::parse("2001:db8::1")->data(), 16}));
  EXPECT_EQ(a("dns.tf.local."), "nodata");
  EXPECT_FALSE(exists("tf.local."));  // the apex is the answerer's
  EXPECT_EQ(a("local."), "nodata");   // above the zone
}

// Writes down what it is told, and looks at the store meanwhile.
class Diary final : public RecordObserver {
 public:
  explicit Diary(const RecordStore& store) : store_(store) {}
  void onChange(const Entry* old, const Entry* fresh) override {
    const Entry& entry = fresh != nullptr ? *fresh : *old;
    owner_ = dns::Name::fromWire(entry.name());
    // Readers see what was there before.
    EXPECT_EQ(find(store_.table(), owner_), old);
    lines_.push_back((old == nullptr ? "+" : fresh == nullptr ? "-" : "=") + owner_.toString());
  }
  void onChanged() override {
    const Entry* entry = find(store_.table(), owner_);
    EXPECT_EQ(entry == nullptr, lines_.back().front() == '-');
  }
  void onSerial(uint32_t serial) override { lines_.push_back("serial " + std::to_string(serial)); }
  void onFreshness(Freshness, BootClock::time_point deadline) override {
    lines_.push_back(deadline > BootClock::time_point() ? "fresh" : "not fresh");
  }
  void onAddresses(const std::vector<IpAddress>& addresses) override {
    lines_.push_back(std::to_string(addresses.size()) + " addresses");
  }
  std::vector<std::string> take() { return std::exchange(lines_, {}); }

 private:
  const RecordStore& store_;
  dns::Name owner_;
  std::vector<std::string> lines_;
};

using Lines = std::vector<std::string>;

TEST_F(RecordStoreTest, AnObserverIsToldOfEachChangeBeforeReadersSeeIt) {
  const auto diary = std::make_shared<Diary>(store_);
  store_.addObserver(diary);
  EXPECT_EQ(diary->take(), (Lines{"3 addresses", "not fresh"}));
  store_.put(name("w1.tf.local."), v4(1), 5);
  EXPECT_EQ(diary->take(), (Lines{"+w1.tf.local.", "serial 5"}));
  store_.put(name("w1.tf.local."), v4(1), 5);
  EXPECT_EQ(diary->take(), Lines{});
  store_.put(name("w1.tf.local."), v4(2), 6);
  EXPECT_EQ(diary->take(), (Lines{"=w1.tf.local.", "serial 6"}));
  store_.put(name("a.b.tf.local."), v4(3), 7);
  EXPECT_EQ(diary->take(), (Lines{"+a.b.tf.local.", "serial 7", "+b.tf.local."}));
  store_.remove(name("a.b.tf.local."), 8);
  EXPECT_EQ(diary->take(), (Lines{"-a.b.tf.local.", "serial 8", "-b.tf.local."}));
  store_.setFreshness(Freshness::kFresh);
  store_.setFreshness(Freshness::kStale);
  store_.setAddresses({});
  EXPECT_EQ(diary->take(), (Lines{"fresh", "not fresh", "0 addresses", "=ns.dns.tf.local."}));
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
  store_.endSnapshot(9);
  EXPECT_EQ(diary->take(), (Lines{"-w1.tf.local.", "serial 9"}));
  store_.removeObserver(diary.get());
  store_.put(name("w1.tf.local."), v4(1), 10);
  EXPECT_EQ(diary->take(), Lines{});
}

TEST_F(RecordStoreTest, TheLastConfirmationIsKnownWhenItIsOver) {
  EXPECT_EQ(store_.lastFreshUntil(), BootClock::time_point());
  const auto until = BootClock::now() + std::chrono::seconds(3);
  store_.setFreshUntil(until);
  store_.setFreshness(Freshness::kStale);
  EXPECT_EQ(store_.freshUntil(), BootClock::time_point());
  EXPECT_EQ(store_.lastFreshUntil(), until);
}

TEST(RecordStore, CountsTheNamesThatComeFirst) {
  EpochDomain epochs;
  RecordStore store(
      epochs, {.zone = name("tf.local."), .addresses = {}, .hash_seed = 99, .is_member = [](const dns::Name& owner) {
                 return owner.toString().starts_with("w");
               }});
  EXPECT_EQ(store.memberCount(), 0u);
  store.put(name("w1.tf.local."), v4(1), 1);
  store.put(name("w2.tf.local."), HostAddresses{}, 2);
  store.put(name("db.tf.local."), v4(3), 3);
  store.put(name("w1.tf.local."), v4(2), 4);
  EXPECT_EQ(store.size(), 3u);
  EXPECT_EQ(store.memberCount(), 2u);
  EXPECT_FALSE(store.remove(name("w1.tf.local."), 3));
  EXPECT_TRUE(store.remove(name("db.tf.local."), 5));
  EXPECT_EQ(store.memberCount(), 2u);
  store.beginSnapshot(SourceHistory::Revisions::kGoOn);
  store.see(name("w2.tf.local."));
  store.endSnapshot(6);
  EXPECT_EQ(store.memberCount(), 1u);
  EXPECT_TRUE(store.remove(name("w2.tf.local."), 7));
  EXPECT_EQ(store.memberCount(), 0u);
}

TEST_F(RecordStoreTest, PutAndRemove) {
  EXPECT_EQ(store_.put(numbered(1), v4(1), 10), Change::kAdded);
  EXPECT_EQ(store_.size(), 1u);
  EXPECT_EQ(a("worker1.tf.local."), v4Octets(1));
  EXPECT_EQ(store_.serial(), 10u);
  EXPECT_EQ(store_.put(numbered(1), v4(2), 11), Change::kReplaced);
  EXPECT_EQ(store_.size(), 1u);
  EXPECT_EQ(a("worker1.tf.local."), v4Octets(2));
  EXPECT_TRUE(store_.remove(numbered(1), 12));
  EXPECT_FALSE(store_.remove(numbered(1), 13));
  EXPECT_EQ(store_.size(), 0u);
  EXPECT_EQ(a("worker1.tf.local."), "nxdomain");
  EXPECT_EQ(store_.put(numbered(1), v4(3), 14), Change::kAdded);
  EXPECT_EQ(a("worker1.tf.local."), v4Octets(3));
}

TEST_F(RecordStoreTest, RecordsCarryTheTtlAndBothFamilies) {
  const IpAddress v6 = *IpAddress::parse("fd00::7");
  store_.put(numbered(1), {.ipv4 = IpAddress::v4({10, 0, 0, 7}), .ipv6 = v6}, 1);
  const Entry* entry = find(store_.table(), numbered(1));
  EXPECT_EQ(rrsetCount(*entry), 2u);
  EXPECT_EQ(test::text(entry->find(1).wire), std::string("\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x0a\0\0\7", 16));
  EXPECT_EQ(test::rdata(*entry, dns::RrType::kAaaa), test::text({v6.data(), 16}));
  store_.put(numbered(1), {.ipv4 = {}, .ipv6 = v6}, 2);
  EXPECT_EQ(a("worker1.tf.local."), "nodata");
}

TEST_F(RecordStoreTest, ANameWithoutAddressesExists) {
  EXPECT_EQ(store_.put(numbered(1), {}, 1), Change::kAdded);
  EXPECT_EQ(a("worker1.tf.local."), "nodata");
  EXPECT_EQ(store_.size(), 1u);
}

TEST_F(RecordStoreTest, AnOlderRevisionNeverReplacesANewerOne) {
  store_.put(numbered(1), v4(9), 9);
  EXPECT_EQ(store_.put(numbered(1), v4(8), 8), Change::kOlder);
  EXPECT_EQ(store_.put(numbered(1), v4(8), 9), Change::kContradiction);
  EXPECT_EQ(store_.put(numbered(1), {}, 9), Change::kContradiction);
  EXPECT_EQ(store_.put(numbered(1), v4(9), 9), Change::kUnchanged);
  EXPECT_EQ(store_.revisionOf(numbered(1)), 9);
  EXPECT_EQ(store_.revisionOf(numbered(2)), 0);
  EXPECT_EQ(a("worker1.tf.local."), v4Octets(9));
  EXPECT_FALSE(store_.remove(numbered(1), 8));
  EXPECT_EQ(a("worker1.tf.local."), v4Octets(9));
  EXPECT_TRUE(store_.remove(numbered(1), 9));
}

TEST_F(RecordStoreTest, TheSerialOnlyGoesForward) {
  store_.put(numbered(1), v4(1), 50);
  store_.put(numbered(2), v4(1), 40);  // a snapshot comes in the order of its keys
  EXPECT_EQ(store_.serial(), 50u);
  store_.remove(numbered(1), 51);
  EXPECT_EQ(store_.serial(), 51u);
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
  store_.put(numbered(3), v4(1), 45);
  EXPECT_EQ(store_.serial(), 51u);
  store_.endSnapshot(60);
  EXPECT_EQ(store_.serial(), 60u);
  store_.put(numbered(4), v4(1), (int64_t{1} << 32) + 5);
  EXPECT_EQ(store_.serial(), 5u);  // the low half
}

TEST_F(RecordStoreTest, ASnapshotRemovesWhatItDidNotSee) {
  for (size_t i = 1; i <= 10; ++i) store_.put(numbered(i), v4(1), static_cast<int64_t>(i));
  store_.put(numbered(11), v4(1), 30);  // the watch was ahead of the snapshot
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
  for (size_t i = 1; i <= 10; i += 2)
    EXPECT_EQ(store_.put(numbered(i), v4(1), static_cast<int64_t>(i)), Change::kUnchanged);
  EXPECT_EQ(store_.put(numbered(12), v4(1), 12), Change::kAdded);
  EXPECT_EQ(store_.put(numbered(1), v4(2), 13), Change::kReplaced);
  EXPECT_EQ(a("worker2.tf.local."), v4Octets(1));  // no empty moment
  const std::vector<std::string> removed = store_.endSnapshot(20);
  EXPECT_EQ(removed.size(), 5u);
  for (const std::string& owner : removed) EXPECT_EQ(a(owner), "nxdomain");
  for (size_t i = 1; i <= 12; ++i) {
    const bool kept = i % 2 == 1 || i == 11 || i == 12;
    EXPECT_EQ(find(store_.table(), numbered(i)) != nullptr, kept) << i;
  }
  EXPECT_EQ(a("ns.dns.tf.local.").size(), 4u);
  EXPECT_EQ(store_.size(), 7u);
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
  EXPECT_EQ(store_.endSnapshot(100).size(), 7u);
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(RecordStoreTest, ASnapshotKeepsWhatAnOlderPutDoesNotReplace) {
  store_.put(numbered(1), v4(9), 9);
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
  EXPECT_EQ(store_.put(numbered(1), v4(3), 3), Change::kOlder);
  EXPECT_EQ(store_.endSnapshot(9).size(), 0u);
  EXPECT_EQ(a("worker1.tf.local."), v4Octets(9));
}

TEST_F(RecordStoreTest, ASnapshotOfOtherHistoryReplacesAll) {
  store_.put(numbered(1), v4(1), 100);
  store_.put(numbered(2), v4(2), 100);
  store_.put(numbered(3), v4(3), 100);
  store_.put(numbered(4), v4(4), 100);
  store_.beginSnapshot(SourceHistory::Revisions::kRestarted);
  EXPECT_EQ(store_.put(numbered(1), v4(11), 7), Change::kReplaced);    // older
  EXPECT_EQ(store_.put(numbered(2), v4(12), 100), Change::kReplaced);  // the same revision, another content
  EXPECT_EQ(store_.put(numbered(3), v4(13), 200), Change::kReplaced);
  EXPECT_EQ(store_.put(numbered(1), v4(99), 6), Change::kOlder);  // seen: from the new history already
  EXPECT_EQ(store_.put(numbered(1), v4(21), 8), Change::kReplaced);
  EXPECT_EQ(store_.endSnapshot(10), std::vector<std::string>{"worker4.tf.local."});
  EXPECT_EQ(a("worker1.tf.local."), v4Octets(21));
  EXPECT_EQ(a("worker2.tf.local."), v4Octets(12));
  EXPECT_EQ(a("worker3.tf.local."), v4Octets(13));
  EXPECT_EQ(store_.serial(), 10u);
  // Then revisions count again.
  EXPECT_EQ(store_.put(numbered(1), v4(1), 8), Change::kContradiction);
  EXPECT_EQ(store_.put(numbered(1), v4(1), 9), Change::kReplaced);
}

TEST_F(RecordStoreTest, OtherHistoryIsRememberedUntilASnapshotEnds) {
  store_.put(numbered(1), v4(1), 100);
  store_.put(numbered(2), v4(2), 100);
  store_.beginSnapshot(SourceHistory::Revisions::kRestarted);
  store_.put(numbered(1), v4(11), 7);
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);  // the first one was broken off
  EXPECT_EQ(store_.put(numbered(1), v4(12), 5), Change::kReplaced);
  EXPECT_EQ(store_.put(numbered(2), v4(22), 6), Change::kReplaced);
  EXPECT_EQ(store_.endSnapshot(8).size(), 0u);
  EXPECT_EQ(a("worker2.tf.local."), v4Octets(22));
}

TEST_F(RecordStoreTest, EmptyNonTerminalsAppearAndDisappear) {
  store_.put(name("x.a.b.tf.local."), v4(1), 1);
  store_.put(name("y.a.b.tf.local."), v4(2), 2);
  EXPECT_EQ(a("a.b.tf.local."), "nodata");
  EXPECT_EQ(a("b.tf.local."), "nodata");
  EXPECT_FALSE(exists("tf.local."));
  EXPECT_EQ(store_.size(), 2u);
  store_.remove(name("x.a.b.tf.local."), 3);
  EXPECT_EQ(a("a.b.tf.local."), "nodata");
  store_.remove(name("y.a.b.tf.local."), 4);
  EXPECT_EQ(a("a.b.tf.local."), "nxdomain");
  EXPECT_EQ(a("b.tf.local."), "nxdomain");
  EXPECT_FALSE(store_.remove(name("b.tf.local."), 9));
}

TEST_F(RecordStoreTest, ANonTerminalThatIsARecordToo) {
  store_.put(name("x.a.tf.local."), v4(1), 1);
  EXPECT_FALSE(store_.remove(name("a.tf.local."), 100));  // nothing of etcd's is there
  EXPECT_EQ(store_.put(name("a.tf.local."), v4(2), 2), Change::kAdded);
  EXPECT_EQ(a("a.tf.local."), v4Octets(2));
  EXPECT_TRUE(store_.remove(name("a.tf.local."), 3));
  EXPECT_EQ(a("a.tf.local."), "nodata");  // still above x.a
  EXPECT_EQ(store_.put(name("a.tf.local."), v4(3), 4), Change::kAdded);
  EXPECT_TRUE(store_.remove(name("x.a.tf.local."), 5));
  EXPECT_EQ(a("a.tf.local."), v4Octets(3));
  EXPECT_TRUE(store_.remove(name("a.tf.local."), 6));
  EXPECT_EQ(a("a.tf.local."), "nxdomain");
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(RecordStoreTest, AReplacementDoesNotCountTwiceBelow) {
  for (int64_t revision = 1; revision < 5; ++revision) store_.put(name("x.a.tf.local."), v4(1), revision);
  store_.remove(name("x.a.tf.local."), 9);
  EXPECT_EQ(a("a.tf.local."), "nxdomain");
}

TEST_F(RecordStoreTest, SnapshotsRemoveNonTerminalsOfWhatTheyRemove) {
  store_.put(name("x.a.tf.local."), v4(1), 1);
  store_.put(name("a.tf.local."), v4(2), 1);
  store_.put(name("z.y.tf.local."), v4(3), 1);
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
  store_.put(name("a.tf.local."), v4(2), 1);
  EXPECT_EQ(store_.endSnapshot(5).size(), 2u);
  EXPECT_EQ(a("x.a.tf.local."), "nxdomain");
  EXPECT_EQ(a("a.tf.local."), v4Octets(2));
  EXPECT_EQ(a("y.tf.local."), "nxdomain");
}

TEST_F(RecordStoreTest, FixturesSurviveAKeyOfTheirName) {
  const std::string own = a("ns.dns.tf.local.");
  EXPECT_EQ(store_.put(name("ns.dns.tf.local."), v4(5), 1), Change::kAdded);
  EXPECT_EQ(a("ns.dns.tf.local."), v4Octets(5));
  EXPECT_TRUE(store_.remove(name("ns.dns.tf.local."), 2));
  EXPECT_EQ(a("ns.dns.tf.local."), own);
  EXPECT_EQ(a("dns.tf.local."), "nodata");

  store_.put(name("x.ns.dns.tf.local."), v4(5), 3);
  store_.remove(name("x.ns.dns.tf.local."), 4);
  EXPECT_EQ(a("ns.dns.tf.local."), own);

  EXPECT_EQ(store_.put(name("tf.local."), v4(6), 5), Change::kAdded);
  EXPECT_EQ(a("tf.local."), v4Octets(6));
  EXPECT_TRUE(store_.remove(name("tf.local."), 6));
  EXPECT_FALSE(exists("tf.local."));
  EXPECT_EQ(store_.size(), 0u);
}

TEST_F(RecordStoreTest, NamesOutsideTheZoneMakeNonTerminalsUpToTheRoot) {
  store_.put(name("x.y.example.org."), v4(1), 1);
  EXPECT_EQ(a("x.y.example.org."), v4Octets(1));
  EXPECT_EQ(a("y.example.org."), "nodata");
  EXPECT_EQ(a("org."), "nodata");
  store_.put(name("local."), v4(2), 2);
  store_.put(name("x.xtf.local."), v4(2), 3);
  EXPECT_EQ(a("xtf.local."), "nodata");
  EXPECT_FALSE(exists("tf.local."));
  EXPECT_TRUE(store_.remove(name("x.y.example.org."), 3));
  EXPECT_FALSE(exists("y.example.org."));
  EXPECT_FALSE(exists("org."));
  EXPECT_TRUE(store_.remove(name("local."), 3));
  EXPECT_EQ(a("local."), "nodata");  // above the zone, and x.xtf.local.
  EXPECT_FALSE(exists("."));
  EXPECT_EQ(store_.size(), 1u);
}

TEST_F(RecordStoreTest, FreshnessIsWhatWasSet) {
  for (const Freshness freshness : {Freshness::kFresh, Freshness::kStale, Freshness::kFromFile, Freshness::kLoading}) {
    store_.setFreshness(freshness);
    EXPECT_EQ(store_.freshness(), freshness);
    EXPECT_EQ(store_.isFresh(BootClock::now()), freshness == Freshness::kFresh);
  }
}

TEST_F(RecordStoreTest, ANameOf127LabelsComesAndGoes) {
  std::string deep = "tf.local.";
  while (deep.size() + 2 <= 253) deep = "a." + deep;
  store_.put(name(deep), v4(1), 1);
  EXPECT_EQ(a("a.tf.local."), "nodata");
  store_.remove(name(deep), 2);
  EXPECT_EQ(a("a.tf.local."), "nxdomain");
}

// Random trees of names against a model that knows only which keys there are.
TEST_F(RecordStoreTest, NonTerminalsAgreeWithAModel) {
  std::mt19937 random(6);
  std::unordered_map<std::string, uint8_t> model;
  std::vector<std::string> all;
  for (const std::string one : {"a.", "b.", "ns."}) {
    all.push_back(one + "tf.local.");
    for (const std::string two : {"a.", "b.", "dns."}) {
      all.push_back(one + two + "tf.local.");
      for (const std::string three : {"a.", "b."}) all.push_back(one + two + three + "tf.local.");
    }
  }
  for (const std::string extra : {"dns.tf.local.", "tf.local.", "a.a.a.a.tf.local."}) all.push_back(extra);
  for (int64_t revision = 1; revision < static_cast<int64_t>(4000 / test::kSlowdown); ++revision) {
    const std::string& key = all[random() % all.size()];
    if (random() % 2 == 0) {
      const auto value = static_cast<uint8_t>(random());
      EXPECT_EQ(store_.put(name(key), v4(value), revision), model.contains(key) ? Change::kReplaced : Change::kAdded);
      model[key] = value;
    } else {
      EXPECT_EQ(store_.remove(name(key), revision), model.erase(key) == 1);
    }
    ASSERT_EQ(store_.size(), model.size());
    for (const std::string& owner : all) {
      const bool has_below = std::any_of(model.begin(), model.end(), [&](const auto& entry) {
        return entry.first != owner && entry.first.ends_with("." + owner);
      });
      std::string expected = has_below && owner != "tf.local." ? "nodata" : "nxdomain";
      if (owner == "dns.tf.local.") expected = "nodata";
      if (owner == "ns.dns.tf.local.") expected = std::string({'\xc0', 0, 2, 1});
      if (model.contains(owner)) expected = v4Octets(model[owner]);
      ASSERT_EQ(a(owner), expected) << owner << " after revision " << revision;
    }
  }
}

// --- several sources ---

constexpr Source kOther = static_cast<Source>(2);
constexpr Source kThird = static_cast<Source>(3);

class SourcesTest : public RecordStoreTest {
 protected:
  Change put(std::string_view owner, Source source, dns::RrType type, const std::vector<std::string>& values,
             uint32_t ttl_seconds = 5, int64_t revision = 0) {
    std::vector<Rdata> rdata;
    for (const std::string& value : values)
      rdata.emplace_back(reinterpret_cast<const uint8_t*>(value.data()), value.size());
    const Rrset rrset{type, ttl_seconds, rdata};
    return store_.put(name(owner), source, {&rrset, 1}, revision);
  }
  // All that the name has: "TYPE TTL RDATA"; "nxdomain".
  std::vector<std::string> said(std::string_view owner) const {
    const Entry* entry = find(store_.table(), name(owner));
    if (entry == nullptr) return {"nxdomain"};
    std::vector<std::string> records;
    entry->visitRecords([&records](dns::RrType type, uint32_t ttl_seconds, Rdata rdata) {
      records.push_back(std::to_string(dns::code(type)) + " " + std::to_string(ttl_seconds) + " " + test::text(rdata));
    });
    return records;
  }
  std::vector<std::string> reverse(std::string_view address) const {
    std::vector<std::string> names;
    const ReverseIndex::Names found = store_.reverse().find(IpAddress::parse(address).value());
    for (const Entry* entry : found.entries()) names.push_back(dns::Name::fromWire(entry->name()).toString());
    return names;
  }
  using Said = std::vector<std::string>;
};

TEST_F(SourcesTest, ANameHasTheSum) {
  EXPECT_EQ(put("a.tf.local.", kThird, dns::RrType::kTxt, {"three", "both"}, 9), Change::kAdded);
  EXPECT_EQ(put("a.tf.local.", kOther, dns::RrType::kTxt, {"two", "both"}, 7), Change::kAdded);
  EXPECT_EQ(store_.put(name("a.tf.local."), v4(65), 10), Change::kAdded);
  const Said all{"1 5 " + v4Octets(65), "16 7 two", "16 7 both", "16 7 three"};
  EXPECT_EQ(said("a.tf.local."), all);
  EXPECT_EQ(store_.size(), 1u);
  EXPECT_EQ(store_.revisionOf(name("a.tf.local.")), 10);
  EXPECT_EQ(put("a.tf.local.", kOther, dns::RrType::kTxt, {"two", "both"}, 7), Change::kUnchanged);
  EXPECT_EQ(store_.put(name("a.tf.local."), v4(65), 10), Change::kUnchanged);
  EXPECT_EQ(store_.put(name("a.tf.local."), v4(66), 10), Change::kContradiction);
  EXPECT_EQ(store_.put(name("a.tf.local."), v4(66), 9), Change::kOlder);
  EXPECT_EQ(said("a.tf.local."), all);
  EXPECT_EQ(put("a.tf.local.", kOther, dns::RrType::kTxt, {"new"}, 8), Change::kReplaced);
  EXPECT_EQ(store_.put(name("a.tf.local."), v4(66), 11), Change::kReplaced);
  EXPECT_EQ(said("a.tf.local."), (Said{"1 5 " + v4Octets(66), "16 8 new", "16 8 three", "16 8 both"}));
  EXPECT_TRUE(store_.remove(name("a.tf.local."), kOther));
  EXPECT_FALSE(store_.remove(name("a.tf.local."), kOther));
  EXPECT_EQ(said("a.tf.local."), (Said{"1 5 " + v4Octets(66), "16 9 three", "16 9 both"}));
  EXPECT_FALSE(store_.remove(name("a.tf.local."), 10)) << "what is stored is newer";
  EXPECT_TRUE(store_.remove(name("a.tf.local."), 12));
  EXPECT_EQ(said("a.tf.local."), (Said{"16 9 three", "16 9 both"}));
  EXPECT_EQ(store_.size(), 0u);
  EXPECT_EQ(store_.revisionOf(name("a.tf.local.")), 0);
  EXPECT_TRUE(store_.remove(name("a.tf.local."), kThird));
  EXPECT_EQ(said("a.tf.local."), Said{"nxdomain"});
}

TEST_F(SourcesTest, ASourceMayHaveANameForItself) {
  EXPECT_EQ(put("x.a.tf.local.", kOther, dns::RrType::kA, {"abcd"}), Change::kAdded);
  EXPECT_EQ(store_.size(), 0u) << "of etcd";
  EXPECT_EQ(a("a.tf.local."), "nodata");
  EXPECT_EQ(reverse("97.98.99.100"), Said{"x.a.tf.local."});
  EXPECT_FALSE(store_.remove(name("x.a.tf.local."), 100)) << "etcd says nothing of it";
  EXPECT_EQ(store_.see(name("x.a.tf.local.")), 0);
  EXPECT_EQ(put("x.a.tf.local.", kOther, dns::RrType::kA, {"abcd"}), Change::kUnchanged);
  EXPECT_EQ(put("x.a.tf.local.", kOther, dns::RrType::kA, {"abce", "abcd"}), Change::kReplaced);
  EXPECT_EQ(reverse("97.98.99.101"), Said{"x.a.tf.local."});
  EXPECT_TRUE(store_.remove(name("x.a.tf.local."), kOther));
  EXPECT_FALSE(exists("a.tf.local."));
  EXPECT_EQ(store_.reverse().size(), 0u);
}

TEST_F(SourcesTest, ASnapshotWithdrawsWhatEtcdSaidAndNothingElse) {
  put("a.tf.local.", kOther, dns::RrType::kA, {"abcd"});
  put("b.tf.local.", kOther, dns::RrType::kTxt, {"b"});
  store_.put(name("a.tf.local."), v4(1), 1);
  store_.put(name("b.tf.local."), v4(2), 2);
  store_.beginSnapshot(SourceHistory::Revisions::kGoOn);
  EXPECT_EQ(store_.see(name("b.tf.local.")), 2);
  put("a.tf.local.", kOther, dns::RrType::kA, {"abcd", "abce"});  // is no sign of what etcd has
  EXPECT_EQ(store_.endSnapshot(3), Said{"a.tf.local."});
  EXPECT_EQ(said("a.tf.local."), (Said{"1 5 abcd", "1 5 abce"}));
  EXPECT_EQ(said("b.tf.local."), (Said{"1 5 " + v4Octets(2), "16 5 b"}));
}

TEST_F(SourcesTest, TheNameServerIsWhatSourcesSay) {
  EXPECT_EQ(reverse("192.0.2.1"), Said{}) << "it is no node's name";
  put("ns.dns.tf.local.", kOther, dns::RrType::kA, {"abcd"});
  EXPECT_EQ(said("ns.dns.tf.local."), Said{"1 5 abcd"});
  store_.put(name("ns.dns.tf.local."), v4(1), 1);
  store_.setAddresses({IpAddress::v4({192, 0, 2, 77})});
  EXPECT_EQ(said("ns.dns.tf.local."), (Said{"1 5 " + v4Octets(1), "1 5 abcd"}));
  store_.remove(name("ns.dns.tf.local."), 1);
  store_.remove(name("ns.dns.tf.local."), kOther);
  EXPECT_EQ(a("ns.dns.tf.local."), std::string({'\xc0', 0, 2, 77}));
}

TEST_F(SourcesTest, AddressesLeadToTheirNames) {
  store_.put(name("worker1.tf.local."), v4(1), 1);
  EXPECT_EQ(reverse("10.0.0.1"), Said{"worker1.tf.local."});
  store_.put(name("worker1.tf.local."), v4(2), 2);
  EXPECT_EQ(reverse("10.0.0.1"), Said{});
  EXPECT_EQ(reverse("10.0.0.2"), Said{"worker1.tf.local."});
  put("worker1.tf.local.", kOther, dns::RrType::kA, {v4Octets(3)});
  EXPECT_EQ(reverse("10.0.0.2"), Said{"worker1.tf.local."});
  EXPECT_EQ(reverse("10.0.0.3"), Said{"worker1.tf.local."});
  store_.remove(name("worker1.tf.local."), 2);
  EXPECT_EQ(reverse("10.0.0.2"), Said{});
  EXPECT_EQ(reverse("10.0.0.3"), Said{"worker1.tf.local."});
  store_.remove(name("worker1.tf.local."), kOther);
  EXPECT_EQ(store_.reverse().size(), 0u);
}

class RootZoneTest : public RecordStoreTest {
 protected:
  RootZoneTest() : RecordStoreTest(".") {}
};

TEST_F(RootZoneTest, HoldsNamesAndTheNamesAboveThem) {
  EXPECT_FALSE(exists("ns.dns."));
  EXPECT_EQ(store_.put(numbered(1), v4(1), 1), Change::kAdded);
  EXPECT_EQ(a("worker1.tf.local."), v4Octets(1));
  EXPECT_EQ(a("tf.local."), "nodata");
  EXPECT_TRUE(store_.remove(numbered(1), 2));
  EXPECT_FALSE(exists("worker1.tf.local."));
  EXPECT_FALSE(exists("tf.local."));
}

TEST(RecordStore, AZoneTooLongForANameServerHasNone) {
  EpochDomain epochs;
  std::string zone = std::string(51, 'z') + ".";
  for (int i = 0; i < 3; ++i) zone += std::string(63, 'z') + ".";
  RecordStore store(epochs, {.zone = name(zone), .addresses = {IpAddress::v4({192, 0, 2, 1})}});
  EXPECT_EQ(find(store.table(), name(zone)), nullptr);
  store.put(name("worker1." + zone), v4(1), 1);
  EXPECT_NE(find(store.table(), name("worker1." + zone)), nullptr);
}

TEST(RecordStore, ANodeWithoutAddressesHasANameServerWithoutData) {
  EpochDomain epochs;
  const RecordStore store(epochs, {.zone = name("tf.local."), .addresses = {}});
  const Entry* entry = find(store.table(), name("ns.dns.tf.local."));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(rrsetCount(*entry), 0u);
}

}  // namespace
}  // namespace idetcd::records
