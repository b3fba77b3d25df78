// Zones that are written as the messages of a transfer, and read again.
#include "dns/message_reader.h"
#include "support/zone_fixture.h"
#include "zones/transfer_reader.h"
#include "zones/transfer_writer.h"

namespace idetcd::zones {
namespace {

using Bytes = std::vector<uint8_t>;
using Messages = TransferReader::Messages;

dns::Name origin() { return dns::Name::parse("example.").value(); }

Messages written(std::shared_ptr<const Zone> zone) {
  Message message("Example.", dns::code(dns::RrType::kAxfr), 1232);
  dns::Query query;
  dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
  TransferWriter writer(query, 0, makeCopy(std::move(zone)));
  Messages messages;
  Bytes room(dns::kMaxMessageSize);
  for (size_t size; (size = writer.next(room)) > 0;) messages.emplace_back(room.begin(), room.begin() + static_cast<ptrdiff_t>(size));
  return messages;
}

Result<std::unique_ptr<const Zone>> readBack(const Messages& messages) {
  TransferReader reader(origin());
  bool is_last = false;
  for (const Bytes& message : messages) {
    const auto added = reader.add(message);
    if (!added) return tl::unexpected(added.error());
    is_last = *added;
  }
  if (!is_last) return fail("no end");
  return buildZone(origin(), Message::kSeed, reader.take(), "primary");
}

// All records, sorted.
std::vector<std::string> recordsOf(std::shared_ptr<const Zone> zone) {
  std::vector<std::string> records;
  const auto copy = makeCopy(std::move(zone));
  const auto add = [&](const ZoneCopy::Record& record) {
    std::string text = fmt::format("{} {} {} ", dns::nameToString(record.owner.data()), record.ttl_seconds, record.type);
    for (const uint8_t byte : record.rdata) text += fmt::format("{:02x}", byte);
    records.push_back(std::move(text));
  };
  add(copy->soa());
  for (ZoneCopy::Record record; copy->next(record);) add(record);
  std::ranges::sort(records);
  return records;
}

TEST(Transfer, AZoneComesBackAsItWas) {
  const std::shared_ptr<const Zone> zone = zoneWith(
      "www A 192.0.2.1\nwww A 192.0.2.2\nwww AAAA 2001:db8::1\nmail MX 10 www\nmail MX 20 elsewhere.test.\nalias CNAME www\n"
      "a.b.c TXT x\n* TXT wild\nsub NS ns.sub\nns.sub A 192.0.2.3\n_x._tcp SRV 1 2 3 www\nold DNAME new\n"
      "x TYPE65280 \\# 2 abcd\ns SVCB 1 www alpn=h2\n");
  const Messages messages = written(zone);
  ASSERT_EQ(messages.size(), 1u);
  const auto again = readBack(messages);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(recordsOf(std::shared_ptr<const Zone>(zone)), recordsOf(std::shared_ptr<const Zone>(again->get(), [](auto*) {})));
  EXPECT_EQ((*again)->serial(), 7u);
  EXPECT_EQ((*again)->names(), zone->names());
}

TEST(Transfer, TheSoaIsFirstAndLast) {
  const Messages messages = written(zoneWith(""));
  ASSERT_EQ(messages.size(), 1u);
  const dns::HeaderView header(messages[0].data());
  EXPECT_EQ(header.answers(), 4u) << "SOA, NS, A, SOA";
  EXPECT_EQ(header.additionals(), 1u) << "OPT";
  EXPECT_TRUE(header.isResponse() && (header.flags() & dns::kFlagAa) != 0);
}

TEST(Transfer, ALargeZoneIsManyMessages) {
  std::string text;
  constexpr size_t kNames = 20'000;
  for (size_t i = 0; i < kNames; ++i) text += fmt::format("host{} A 192.0.{}.{}\n", i, i / 256 % 256, i % 256);
  text += "large TXT";
  for (int i = 0; i < 120; ++i) text += " " + std::string(250, 'x');
  const std::shared_ptr<const Zone> zone = zoneWith(text + "\n");
  const Messages messages = written(zone);
  EXPECT_GT(messages.size(), 20u);
  size_t records = 0;
  for (const Bytes& message : messages) {
    records += dns::HeaderView(message.data()).answers();
    EXPECT_LE(message.size(), TransferWriter::kSize + 120 * 251) << "one record may be larger";
  }
  EXPECT_EQ(records, kNames + 5);
  const auto again = readBack(messages);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)->recordCount(), kNames + 4);
}

TEST(Transfer, ASignedZoneHasItsNsec3RecordsToo) {
  const std::shared_ptr<const Zone> zone = zoneWith(
      "@ NSEC3PARAM 1 0 1 ab\n0p9mhaveqvm6t7vbl5lop2u3t2rp3tom NSEC3 1 0 1 ab 2t7b4g4vsa5smi47k61mv5bv1a22bojr A RRSIG\n");
  const auto again = readBack(written(zone));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)->denial().kind(), Denial::Kind::kNsec3);
}

TEST(Transfer, WhatIsNoZoneIsRefused) {
  const Messages good = written(zoneWith("www A 192.0.2.1\n"));
  const auto changed = [&](auto change) {
    Messages messages = good;
    change(messages[0]);
    return readBack(messages);
  };
  EXPECT_FALSE(readBack({}));
  EXPECT_EQ(changed([](Bytes& message) { dns::store16(&message[6], 4); }).error().message, "no end");
  EXPECT_EQ(changed([](Bytes& message) { dns::store16(&message[6], 0); }).error().message, "a message has no records");
  EXPECT_EQ(changed([](Bytes& message) { message[3] |= 5; }).error().message, "it answers REFUSED");
  EXPECT_EQ(changed([](Bytes& message) { message[2] |= 2; }).error().message, "a message is truncated");
  EXPECT_EQ(readBack({good[0], good[0]}).error().message, "records follow the last SOA");
  TransferReader other(dns::Name::parse("other.").value());
  EXPECT_EQ(other.add(good[0]).error().message, "it does not begin with the zone's SOA");
  for (size_t size = 0; size < good[0].size() - dns::kOptSize; ++size) {
    TransferReader reader(origin());
    EXPECT_FALSE(reader.add(std::span(good[0]).first(size))) << size;
  }
}

TEST(Transfer, OnlyTheZonesOwnSoaIsTheLastRecord) {
  const Messages good = written(zoneWith("sub TXT x\n"));
  // The last place of `pattern`, whose byte at `index` becomes another one.
  const auto changed = [&good](const std::array<uint8_t, 8>& pattern, ptrdiff_t index, uint8_t byte) {
    Messages messages = good;
    auto& first = messages[0];
    const auto found = std::find_end(first.begin(), first.end(), pattern.begin(), pattern.end());
    EXPECT_NE(found, first.end());
    if (found != first.end()) found[index] = byte;
    return readBack(messages);
  };
  constexpr std::array<uint8_t, 8> kSerialAndRefresh{0, 0, 0, 7, 0, 0, 14, 16};
  EXPECT_EQ(changed(kSerialAndRefresh, 3, 8).error().message, "its last SOA has another serial than the first");
  constexpr std::array<uint8_t, 8> kTxtHead{0, 16, 0, 1, 0, 0, 1, 44};
  EXPECT_EQ(changed(kTxtHead, 1, 6).error().message, "primary: a record of type SOA is none") << "of another name: not the end";
}

// Whatever one byte becomes, there is a zone or an error.
TEST(Transfer, EveryByteMayBeWrong) {
  const Messages good = written(zoneWith("www A 192.0.2.1\nmail MX 10 www\nalias CNAME www\nx TXT y\nsub DS 1 8 2 abcd\n"));
  for (size_t i = dns::kHeaderSize; i < good[0].size(); ++i) {
    for (const uint8_t flip : {0x01, 0x80, 0xc0, 0xff}) {
      Messages bad = good;
      bad[0][i] ^= flip;
      readBack(bad);
    }
  }
}

// A message of an IXFR's answer, to which records are added.
class Ixfr {
 public:
  Ixfr() : bytes_(dns::kHeaderSize) { bytes_[2] = 0x84; }
  explicit Ixfr(Bytes bytes) : bytes_(std::move(bytes)) {}

  Ixfr& soa(uint32_t serial) {
    Bytes rdata(22);
    dns::store32(&rdata[2], serial);
    return add(origin(), dns::code(dns::RrType::kSoa), 300, rdata);
  }
  Ixfr& a(const std::string& label, uint8_t last_byte, uint32_t ttl_seconds = 300) {
    return add(dns::Name::parse(label + ".example.").value(), dns::code(dns::RrType::kA), ttl_seconds, {192, 0, 2, last_byte});
  }
  Ixfr& record(const std::string& label, uint16_t type, uint32_t ttl_seconds, const Bytes& rdata) {
    return add(dns::Name::parse(label + ".example.").value(), type, ttl_seconds, rdata);
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Ixfr& add(const dns::Name& owner, uint16_t type, uint32_t ttl_seconds, const Bytes& rdata) {
    bytes_.insert(bytes_.end(), owner.wire().begin(), owner.wire().end());
    Bytes head(10);
    dns::store16(head.data(), type);
    dns::store16(&head[2], dns::code(dns::RrClass::kIn));
    dns::store32(&head[4], ttl_seconds);
    dns::store16(&head[8], static_cast<uint16_t>(rdata.size()));
    bytes_.insert(bytes_.end(), head.begin(), head.end());
    bytes_.insert(bytes_.end(), rdata.begin(), rdata.end());
    dns::store16(&bytes_[6], static_cast<uint16_t>(dns::load16(&bytes_[6]) + 1));
    return *this;
  }

  Bytes bytes_;
};

// A copy of serial 7, and what becomes of it.
class Copied {
 public:
  explicit Copied(const std::string& text = "www A 192.0.2.1\nmail A 192.0.2.2\n", uint32_t serial = 7)
      : zone_(parseZone(fmt::format("$TTL 300\n@ SOA . . {} 0 0 0 0\n@ NS ns\nns A 192.0.2.53\n{}", serial, text)).value()) {}

  // Its records, or the error.
  std::vector<std::string> with(const std::vector<Ixfr>& messages) const {
    TransferReader reader(origin(), zone_->serial());
    bool is_last = false;
    for (const Ixfr& message : messages) {
      const auto added = reader.add(message.bytes());
      if (!added) return {added.error().message};
      is_last = *added;
    }
    if (!is_last) return {"no end"};
    auto changed = buildZone(origin(), Message::kSeed, reader.take(), "primary", zone_);
    if (!changed) return {changed.error().message};
    return recordsOf(std::shared_ptr<const Zone>(std::move(*changed)));
  }
  std::vector<std::string> records() const { return recordsOf(zone_); }

 private:
  std::shared_ptr<const Zone> zone_;
};

TEST(TransferOfChanges, TheyAreMadeOneAfterTheOther) {
  const std::vector<Ixfr> all{Ixfr().soa(9).soa(7).a("www", 1).soa(8).a("www", 3).a("new", 5),
                              Ixfr().soa(8).a("www", 3).soa(9).a("www", 4).a("www", 6).soa(9)};
  EXPECT_EQ(Copied().with(all), Copied("mail A 192.0.2.2\nwww A 192.0.2.4\nwww A 192.0.2.6\nnew A 192.0.2.5\n", 9).records());
}

TEST(TransferOfChanges, OfATtlOnlyOrOfNothing) {
  EXPECT_EQ(Copied().with({Ixfr().soa(8).soa(7).a("www", 1).soa(8).a("www", 1, 60).soa(8)}),
            Copied("www 60 A 192.0.2.1\nmail A 192.0.2.2\n", 8).records());
  EXPECT_EQ(Copied().with({Ixfr().soa(8).soa(7).soa(8).soa(8)}), Copied("www A 192.0.2.1\nmail A 192.0.2.2\n", 8).records());
  EXPECT_EQ(Copied("", 0xffffffff).with({Ixfr().soa(1).soa(0xffffffff).soa(1).a("x", 1).soa(1)}), Copied("x A 192.0.2.1\n", 1).records());
}

// RFC 2181 §5.2, whether or not the primary sends the others of the RRset again.
TEST(TransferOfChanges, TheNewestTtlOfAnRrsetIsThatOfAll) {
  EXPECT_EQ(Copied().with({Ixfr().soa(8).soa(7).soa(8).a("www", 3, 60).soa(8)}),
            Copied("www 60 A 192.0.2.1\nwww 60 A 192.0.2.3\nmail A 192.0.2.2\n", 8).records());
  EXPECT_EQ(Copied().with({Ixfr().soa(9).soa(7).soa(8).a("www", 9, 600).soa(8).soa(9).a("www", 3, 60).soa(9)}),
            Copied("www 60 A 192.0.2.1\nwww 60 A 192.0.2.3\nwww 60 A 192.0.2.9\nmail A 192.0.2.2\n", 9).records());
}

TEST(TransferOfChanges, SignaturesHaveTheirOwnTtls) {
  const auto rrsig = [](const char* type, int ttl_seconds) {
    return fmt::format("www {} RRSIG {} 8 2 300 20300101000000 20200101000000 1 . AAAA\n", ttl_seconds, type);
  };
  const Copied before("www A 192.0.2.1\n" + rrsig("A", 300));
  const std::string after = "www A 192.0.2.1\n" + rrsig("A", 300) + rrsig("TXT", 60);
  Ixfr message;
  message.soa(8).soa(7).soa(8).record("www", 46, 60, {0, 16, 8, 2, 0, 0, 1, 44, 0x70, 0xdb, 0xd8, 0x80, 0x5e, 0x0b, 0xe1, 0x00, 0, 1, 0, 0, 0, 0});
  EXPECT_EQ(before.with({message.soa(8)}), Copied(after, 8).records());
}

TEST(TransferOfChanges, RecordsOfDnssecAreKept) {
  const std::string signed_text =
      "@ NSEC3PARAM 1 0 1 ab\n0p9mhaveqvm6t7vbl5lop2u3t2rp3tom NSEC3 1 0 1 ab 2t7b4g4vsa5smi47k61mv5bv1a22bojr A RRSIG\n";
  EXPECT_EQ(Copied(signed_text).with({Ixfr().soa(8).soa(7).soa(8).a("x", 1).soa(8)}), Copied(signed_text + "x A 192.0.2.1\n", 8).records());
}

TEST(TransferOfChanges, ThePrimaryMaySendTheWholeZone) {
  EXPECT_EQ(Copied().with({Ixfr().soa(8).a("only", 1).soa(8)}).size(), 2u);
  EXPECT_EQ(Copied().with({Ixfr().soa(8), Ixfr().a("only", 1), Ixfr().soa(8)}).size(), 2u);
}

TEST(TransferOfChanges, MoreOfThemThanRecordsAreRefused) {
  const auto added = [](int count) {
    Ixfr message;
    message.soa(8).soa(7).soa(8);
    for (int i = 0; i < count; ++i) message.a(fmt::format("host{}", i), 1);
    return Copied().with({message.soa(8)});
  };
  EXPECT_EQ(added(1000).size(), 1005u);
  EXPECT_EQ(added(1001), std::vector<std::string>{"primary: it has more changes than the copy has records"});
}

TEST(TransferOfChanges, WhatDoesNotFitTheCopyIsRefused) {
  using Records = std::vector<std::string>;
  const Records misfit{"primary: its changes do not fit the copy"};
  EXPECT_EQ(Copied().with({Ixfr().soa(8).soa(7).a("none", 1).soa(8).soa(8)}), misfit) << "removes what is not there";
  EXPECT_EQ(Copied().with({Ixfr().soa(8).soa(7).soa(8).a("www", 1).soa(8)}), misfit) << "adds what is there";
  EXPECT_EQ(Copied().with({Ixfr().soa(8).soa(7).a("www", 1).a("www", 1).soa(8).soa(8)}), misfit) << "removes it twice";
  EXPECT_EQ(Copied().with({Ixfr().soa(9).soa(7).soa(8).soa(7).soa(9).soa(9)}), Records{"its changes do not follow each other"});
  EXPECT_EQ(Copied().with({Ixfr().soa(9).soa(8).soa(9).soa(9)}), Records{"its changes begin with another serial than the copy's"});
  EXPECT_EQ(Copied().with({Ixfr().soa(7)}), Records{"its serial is not later than the copy's"});
  EXPECT_EQ(Copied().with({Ixfr().soa(8).soa(7).soa(8).soa(8).a("x", 1)}), Records{"records follow the last SOA"});
  EXPECT_EQ(Copied().with({Ixfr().soa(8)}), Records{"no end"});
}

// Whatever one byte becomes, there is a zone or an error.
TEST(TransferOfChanges, EveryByteMayBeWrong) {
  const Copied copied;
  const Bytes good = Ixfr().soa(9).soa(7).a("www", 1).soa(8).a("www", 3).soa(8).a("www", 3).soa(9).a("x", 5).soa(9).bytes();
  for (size_t i = dns::kHeaderSize; i < good.size(); ++i) {
    for (const uint8_t flip : {0x01, 0x80, 0xc0, 0xff}) {
      Bytes bad = good;
      bad[i] ^= flip;
      copied.with({Ixfr(std::move(bad))});
    }
  }
}

TEST(Transfer, SerialsAreComparedAsTheyGoRound) {
  EXPECT_TRUE(isLaterSerial(2, 1));
  EXPECT_FALSE(isLaterSerial(1, 2));
  EXPECT_FALSE(isLaterSerial(1, 1));
  EXPECT_TRUE(isLaterSerial(0, 0xffffffff));
  EXPECT_FALSE(isLaterSerial(0xffffffff, 0));
}

}  // namespace
}  // namespace idetcd::zones
