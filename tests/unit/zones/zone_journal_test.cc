// Changes that a journal keeps, written as an IXFR's answer, and made in a copy.
#include "zones/zone_journal.h"

#include <numeric>

#include "support/zone_fixture.h"
#include "zones/transfer_reader.h"
#include "zones/transfer_writer.h"

namespace idetcd::zones {
namespace {

using ZonePointer = std::shared_ptr<const Zone>;

// A zone and the versions of it that came before.
class ZoneJournalTest : public testing::Test {
 protected:
  // The text follows SOA and NS.
  static std::unique_ptr<Zone> make(uint32_t serial, const std::string& text) {
    auto zone = parseZone(fmt::format("$TTL 300\n@ SOA ns m {} 3600 600 86400 60\n@ NS ns\n{}", serial, text));
    EXPECT_TRUE(zone) << (zone ? "" : zone.error().message);
    return std::unique_ptr<Zone>(const_cast<Zone*>(zone->release()));
  }
  // The next version.
  const ZonePointer& put(uint32_t serial, const std::string& text) {
    auto zone = make(serial, text);
    if (!versions_.empty()) keepChanges(*zone, versions_.back());
    versions_.push_back(std::move(zone));
    return versions_.back();
  }
  const ZoneJournal& journal() const { return *versions_.back()->journal(); }

  // In the order in which they are sent: "SOA 7", "www 300 1 c0000201"; empty: they are not known.
  std::vector<std::string> changesSince(uint32_t serial) const {
    std::vector<std::string> texts;
    const auto changes = journal().since(serial);
    for (ZoneCopy::Record record; changes && changes->next(record);) texts.push_back(textOf(record));
    return texts;
  }
  static std::string textOf(const ZoneCopy::Record& record) {
    if (dns::isType(record.type, dns::RrType::kSoa)) return fmt::format("SOA {}", ZoneCopy::serialOf(record.rdata));
    std::string text = fmt::format("{} {} {} ", dns::nameToString(record.owner.data()), record.ttl_seconds, record.type);
    for (const uint8_t byte : record.rdata) text += fmt::format("{:02x}", byte);
    return text;
  }
  static std::vector<std::string> contentOf(const ZonePointer& zone) {
    const auto copy = makeCopy(zone);
    std::vector<std::string> texts{textOf(copy->soa())};
    for (ZoneCopy::Record record; copy->next(record);) texts.push_back(textOf(record));
    std::ranges::sort(texts);
    return texts;
  }
  // What becomes of a version by the changes since then; empty: they are not known, or do not fit it.
  std::vector<std::string> changed(const ZonePointer& version) const {
    auto changes = journal().since(version->serial());
    if (!changes) return {};
    Message message("example.", dns::code(dns::RrType::kIxfr), 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    TransferWriter writer(query, 0, std::move(changes));
    TransferReader reader(version->origin(), version->serial());
    std::vector<uint8_t> room(dns::kMaxMessageSize);
    bool is_last = false;
    for (size_t size; (size = writer.next(room)) > 0;) {
      const auto added = reader.add(std::span(room).first(size));
      EXPECT_TRUE(added) << added.error().message;
      is_last = added && *added;
    }
    EXPECT_TRUE(is_last && reader.course().isIncremental());
    auto zone = buildZone(version->origin(), Message::kSeed, reader.take(), "primary", version);
    EXPECT_TRUE(zone) << (zone ? "" : zone.error().message);
    return zone ? contentOf(ZonePointer(std::move(*zone))) : std::vector<std::string>();
  }
  void expectAllLeadToTheNewest() const {
    for (size_t i = 0; i + 1 < versions_.size(); ++i)
      EXPECT_EQ(changed(versions_[i]), contentOf(versions_.back())) << versions_[i]->serial();
  }

  std::vector<ZonePointer> versions_;
};

TEST_F(ZoneJournalTest, RemovedRecordsThenAddedOnesOfEachSerial) {
  put(7, "www A 192.0.2.1\nold A 192.0.2.2\n");
  put(8, "www A 192.0.2.3\nold A 192.0.2.2\n");
  put(11, "www A 192.0.2.3\nnew TXT x\n");
  const std::vector<std::string> last{"SOA 8", "old.example. 300 1 c0000202", "SOA 11", "new.example. 300 16 0178"};
  EXPECT_EQ(changesSince(8), last);
  std::vector<std::string> all{"SOA 7", "www.example. 300 1 c0000201", "SOA 8", "www.example. 300 1 c0000203"};
  all.insert(all.end(), last.begin(), last.end());
  EXPECT_EQ(changesSince(7), all);
  EXPECT_EQ(journal().since(7)->serial(), 11u);
  expectAllLeadToTheNewest();
  for (const uint32_t serial : {0, 9, 10, 11, 12}) EXPECT_EQ(journal().since(serial), nullptr) << serial;
}

TEST_F(ZoneJournalTest, ATtlAnAliasAndOnlyTheSerial) {
  put(1, "www 300 A 192.0.2.1\nwww 300 A 192.0.2.2\nx A 192.0.2.3\n");
  put(2, "www 60 A 192.0.2.1\nwww 60 A 192.0.2.2\nx A 192.0.2.3\n");
  EXPECT_EQ(changesSince(1).size(), 6u) << "two SOAs, and each record of the RRset twice";
  put(3, "www 60 A 192.0.2.1\nwww 60 A 192.0.2.2\nx A 192.0.2.3\n");
  EXPECT_EQ(changesSince(2), (std::vector<std::string>{"SOA 2", "SOA 3"}));
  put(4, "www 60 A 192.0.2.1\nwww 60 A 192.0.2.2\nx CNAME www\n");
  put(5, "www 60 A 192.0.2.1\nwww 10 A 192.0.2.4\nx CNAME www\n");
  expectAllLeadToTheNewest();
}

TEST_F(ZoneJournalTest, RecordsOfDnssec) {
  const auto signed_text = [](std::string_view salt) {
    return fmt::format("@ NSEC3PARAM 1 0 1 {0}\n0p9mhaveqvm6t7vbl5lop2u3t2rp3tom NSEC3 1 0 1 {0} 2t7b4g4vsa5smi47k61mv5bv1a22bojr A RRSIG\n", salt);
  };
  put(1, signed_text("ab"));
  put(2, signed_text("cd"));
  EXPECT_EQ(changesSince(1).size(), 6u);
  expectAllLeadToTheNewest();
}

// Of a copy whose records are in another order, and of one that has more in the middle than are looked at ahead.
TEST_F(ZoneJournalTest, TheOrderDoesNotMatter) {
  std::vector<std::string> lines;
  for (int i = 0; i < 500; ++i) lines.push_back(fmt::format("host{} A 192.0.2.{}\n", i, i % 256));
  const auto text = [&] { return std::accumulate(lines.begin(), lines.end(), std::string()); };
  put(1, text());
  std::ranges::reverse(lines);
  put(2, text());
  EXPECT_EQ(changesSince(1).size(), 2u);
  for (int i = 0; i < 100; ++i) lines.insert(lines.begin() + 250, fmt::format("host250 TXT {}\n", i));
  lines.erase(lines.begin() + 100, lines.begin() + 200);
  put(3, text());
  EXPECT_EQ(changesSince(2).size(), 202u);
  std::string more = text();
  for (int i = 0; i < 700; ++i) more += fmt::format("other{} A 192.0.2.1\n", i);
  put(4, more);
  EXPECT_EQ(changesSince(3).size(), 702u);
  expectAllLeadToTheNewest();
}

TEST_F(ZoneJournalTest, ManySteps) {
  constexpr uint32_t kFirst = 0xffffff80;  // they go round
  std::string zone;
  for (int i = 0; i < 3000; ++i) zone += fmt::format("host{} A 192.0.2.{}\n", i, i % 256);
  for (uint32_t i = 0; i < ZoneJournal::kMostSteps + 3; ++i) {
    std::string text = zone;
    for (uint32_t j = i % 7; j < i % 11; ++j) text += fmt::format("moving{} A 192.0.{}.1\n", j, i % 5);
    put(kFirst + i, text);
  }
  EXPECT_EQ(journal().steps(), ZoneJournal::kMostSteps);
  EXPECT_EQ(changed(versions_[0]), std::vector<std::string>());
  EXPECT_EQ(changed(versions_[1]), std::vector<std::string>());
  for (const size_t i : {size_t{2}, ZoneJournal::kMostSteps / 2, ZoneJournal::kMostSteps + 1})
    EXPECT_EQ(changed(versions_[i]), contentOf(versions_.back())) << i;
}

TEST_F(ZoneJournalTest, NoMoreIsKeptThanTheZoneHas) {
  constexpr int kNames = 1000;
  const auto zone = [](int changed) {
    std::string text;
    for (int i = 0; i < kNames; ++i) text += fmt::format("host{} A 192.0.2.{}\n", i, i < changed ? 2 : 1);
    return text;
  };
  put(1, zone(0));
  put(2, zone(kNames / 3));
  EXPECT_EQ(journal().steps(), 1u);
  const size_t bytes = journal().bytes();
  put(3, zone(0));
  EXPECT_EQ(journal().steps(), 1u) << "the second one takes the place of the first";
  EXPECT_EQ(journal().bytes(), bytes);
  EXPECT_EQ(changed(versions_[1]), contentOf(versions_.back()));
  put(4, zone(kNames));
  EXPECT_EQ(journal().steps(), 0u) << "each name";
  EXPECT_EQ(journal().bytes(), 0u);
}

TEST_F(ZoneJournalTest, AFewChangesAreKeptOfTheSmallestZone) {
  for (uint32_t serial = 1; serial <= 100; ++serial) put(serial, fmt::format("www A 192.0.2.{}\n", serial));
  EXPECT_GE(journal().steps(), 10u);
  EXPECT_LT(journal().steps(), 99u);
  EXPECT_LE(journal().bytes(), ZoneJournal::kLeastBytes);
  EXPECT_EQ(changed(versions_[99 - journal().steps()]), contentOf(versions_.back()));
  EXPECT_EQ(journal().since(99 - static_cast<uint32_t>(journal().steps())), nullptr);
}

TEST_F(ZoneJournalTest, WithoutALaterSerialNothingIsKept) {
  put(7, "www A 192.0.2.1\n");
  put(8, "www A 192.0.2.2\n");
  put(8, "www A 192.0.2.2\n");
  EXPECT_EQ(journal().steps(), 1u) << "read again, as it was";
  put(8, "www A 192.0.2.3\n");
  EXPECT_EQ(journal().steps(), 0u) << "another zone of the same serial";
  put(9, "www A 192.0.2.4\n");
  EXPECT_EQ(journal().steps(), 0u) << "a secondary may have either zone of serial 8";
  put(10, "www A 192.0.2.5\n");
  EXPECT_EQ(journal().steps(), 1u);
  put(5, "www A 192.0.2.4\n");
  EXPECT_EQ(journal().steps(), 0u) << "an earlier one";
  put(10, "www A 192.0.2.6\n");
  put(11, "www A 192.0.2.7\n");
  EXPECT_EQ(journal().since(10), nullptr) << "a secondary may have the first zone of serial 10";
  put(12, "www A 192.0.2.8\n");
  EXPECT_NE(journal().since(11), nullptr);
}

// A copy of the same records, some of them twice, as a cluster's `all` may have them.
class DoubledCopy final : public ZoneCopy {
 public:
  DoubledCopy(uint32_t serial, std::vector<uint8_t> last_bytes) : last_bytes_(std::move(last_bytes)) {
    dns::store32(&soa_[2], serial);
    for (const uint8_t byte : last_bytes_) rdata_.push_back({192, 0, 2, byte});
  }
  Record soa() const override { return {name_.wire(), dns::code(dns::RrType::kSoa), 300, soa_}; }
  void rewind() override { next_ = 0; }
  bool next(Record& record) override {
    if (next_ == rdata_.size()) return false;
    record = {name_.wire(), dns::code(dns::RrType::kA), 300, rdata_[next_++]};
    return true;
  }

 private:
  const dns::Name name_ = dns::Name::parse("all.example.").value();
  std::array<uint8_t, 22> soa_{};
  const std::vector<uint8_t> last_bytes_;
  std::vector<std::array<uint8_t, 4>> rdata_;
  size_t next_ = 0;
};

TEST_F(ZoneJournalTest, ARecordThatIsThereTwiceIsOne) {
  const auto changes = [](std::vector<uint8_t> before, std::vector<uint8_t> after) {
    DoubledCopy old_copy(1, std::move(before));
    DoubledCopy new_copy(2, std::move(after));
    const auto since = ZoneJournal::next({}, old_copy, new_copy, Message::kSeed).since(1);
    std::vector<std::string> texts;
    for (ZoneCopy::Record record; since->next(record);) texts.push_back(textOf(record));
    return texts;
  };
  EXPECT_EQ(changes({1, 1}, {1}), (std::vector<std::string>{"SOA 1", "SOA 2"})) << "one of them stays";
  EXPECT_EQ(changes({1}, {1, 2, 2}), (std::vector<std::string>{"SOA 1", "SOA 2", "all.example. 300 1 c0000202"}));
  EXPECT_EQ(changes({1, 2, 1}, {2, 1}), (std::vector<std::string>{"SOA 1", "SOA 2"})) << "whichever";
  EXPECT_EQ(changes({1, 1}, {}), (std::vector<std::string>{"SOA 1", "all.example. 300 1 c0000201", "SOA 2"}));
}

}  // namespace
}  // namespace idetcd::zones
