#include "resolver/stored_response.h"

#include <chrono>

#include <gtest/gtest.h>

#include "dns/message_reader.h"
#include "support/query_fixture.h"
#include "support/upstream_message.h"

namespace idetcd::resolver {
namespace {

constexpr uint16_t kId = 0xbeef;

class StoredResponseTest : public testing::Test {
 protected:
  explicit StoredResponseTest() { ask("www.example.org.", 1); }

  void ask(std::string_view qname, uint16_t qtype, std::optional<uint16_t> edns = 4096) {
    message_ = Message(qname, qtype, edns);
    dns::parseQuery(message_.data(), message_.size(), Message::kSeed, query_);
  }
  UpstreamVerdict read(const UpstreamMessage& upstream) {
    response_.emplace();
    return readUpstreamResponse(upstream.bytes, kId, query_, *response_);
  }
  std::vector<Message::Record> write(const dns::WriteOptions& options = {}, size_t limit = 1232) {
    message_.setResponse(dns::writePackedResponse(*response_->packed, query_, limit, options));
    return message_.records();
  }

  Message message_{"www.example.org.", 1};
  dns::Query query_;
  std::optional<StoredResponse> response_;
};

// More names than are remembered, longer than there is room for: what can be compressed is, and all of it is right.
TEST_F(StoredResponseTest, ManyLongNames) {
  UpstreamMessage upstream("mail.example.", 15);
  std::vector<std::string> targets;
  for (int i = 0; i < 60; ++i) {
    const std::string label = std::string(50, static_cast<char>('a' + i % 26)) + std::to_string(i);
    targets.push_back(label + '.' + label + '.' + label + ".x" + std::to_string(i / 4) + ".example.");
    std::vector<uint8_t> rdata{0, static_cast<uint8_t>(i)};
    const auto name = UpstreamMessage::name(targets.back());
    rdata.insert(rdata.end(), name.begin(), name.end());
    upstream.record(UpstreamMessage::kAnswer, "mail.example.", 15, 300, rdata);
  }
  Message message("mail.example.", 15, 4096);
  dns::Query query;
  dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
  StoredResponse response;
  ASSERT_EQ(readUpstreamResponse(upstream.bytes, 0xbeef, query, response), UpstreamVerdict::kAccepted);
  EXPECT_LT(response.packed->body().size(), upstream.bytes.size() - 60 * 20);
  std::vector<uint8_t> room(65535);
  std::memcpy(room.data(), message.data(), message.size());
  query.message = room.data();
  const size_t size = dns::writePackedResponse(*response.packed, query, room.size(), {});
  const std::span<const uint8_t> bytes(room.data(), size);
  size_t pos = query.question_end;
  for (const std::string& target : targets) {
    dns::ExpandedName owner;
    dns::ExpandedName exchange;
    pos = dns::expandName(bytes, pos, owner);
    ASSERT_NE(pos, 0u);
    EXPECT_EQ(dns::nameToString(owner.wire.data()), "mail.example.");
    pos = dns::expandName(bytes, pos + 12, exchange);
    ASSERT_NE(pos, 0u);
    EXPECT_EQ(dns::nameToString(exchange.wire.data()), target);
  }
  EXPECT_EQ(pos + dns::kOptSize, size);
}

TEST_F(StoredResponseTest, PositiveAnswerComesBackCompressed) {
  UpstreamMessage upstream("WWW.example.ORG.", 1);
  upstream.cname("www.example.org.", "web.example.org.", 300)
      .a("web.example.org.", 60, {192, 0, 2, 1})
      .a("web.example.org.", 60, {192, 0, 2, 2});
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->kind, ResponseKind::kPositive);
  EXPECT_EQ(response_->ttl_seconds, 60u);
  const auto records = write({.age_seconds = 10});
  ASSERT_EQ(records.size(), 4u) << "three and OPT";
  EXPECT_EQ(records[0].owner, "www.example.org.");
  EXPECT_EQ(records[0].ttl, 290u);
  EXPECT_EQ(records[1].owner, "web.example.org.");
  EXPECT_EQ(records[1].ttl, 50u);
  EXPECT_TRUE(message_.flag(dns::kFlagRa));
  EXPECT_FALSE(message_.flag(dns::kFlagAa));
  // CNAME: owner pointer, label "web" and a pointer; each A: a pointer for its owner.
  EXPECT_EQ(response_->packed->body().size(), (2u + 10 + 4 + 2) + 2 * (2 + 10 + 4));
}

// glibc reads the aliases of an answer from the first record on: behind the addresses it does not find them.
TEST_F(StoredResponseTest, AliasesComeBeforeWhatTheyLeadTo) {
  UpstreamMessage upstream("www.example.org.", 1);
  upstream.a("c.example.net.", 60, {192, 0, 2, 1})
      .cname("b.example.net.", "c.example.net.", 300)
      .a("c.example.net.", 60, {192, 0, 2, 2})
      .cname("www.example.org.", "b.example.net.", 300);
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  std::vector<std::string> owners;
  for (const auto& record : write()) owners.push_back(record.owner);
  EXPECT_EQ(owners, (std::vector<std::string>{"www.example.org.", "b.example.net.", "c.example.net.", "c.example.net.",
                                              "."}));
}

// RFC 2181 §10.1
TEST_F(StoredResponseTest, TwoAliasesOfOneNameAreMalformed) {
  UpstreamMessage upstream("www.example.org.", 1);
  upstream.cname("www.example.org.", "a.example.org.")
      .cname("www.example.org.", "b.example.org.")
      .a("a.example.org.", 60, {192, 0, 2, 1});
  EXPECT_EQ(read(upstream), UpstreamVerdict::kMalformed);
  UpstreamMessage behind("www.example.org.", 1);
  behind.cname("www.example.org.", "a.example.org.")
      .cname("a.example.org.", "b.example.org.")
      .cname("a.example.org.", "c.example.org.");
  EXPECT_EQ(read(behind), UpstreamVerdict::kMalformed);
  UpstreamMessage twice("www.example.org.", 1);
  twice.cname("www.example.org.", "a.example.org.")
      .cname("www.example.org.", "A.example.org.")
      .a("a.example.org.", 60, {192, 0, 2, 1});
  EXPECT_EQ(read(twice), UpstreamVerdict::kAccepted) << "one that is there twice";
  for (const uint16_t type : {5, 255}) {
    ask("www.example.org.", type);
    UpstreamMessage asked("www.example.org.", type);
    asked.cname("www.example.org.", "a.example.org.").cname("www.example.org.", "b.example.org.");
    EXPECT_EQ(read(asked), UpstreamVerdict::kMalformed) << type;
  }
}

TEST_F(StoredResponseTest, AnAliasHasNoOtherRecords) {
  UpstreamMessage upstream("www.example.org.", 1);
  upstream.a("www.example.org.", 60, {192, 0, 2, 9})
      .cname("www.example.org.", "a.example.org.")
      .a("a.example.org.", 60, {192, 0, 2, 1});
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  const auto records = write();
  ASSERT_EQ(records.size(), 3u) << "two and OPT";
  EXPECT_EQ(records[1].owner, "a.example.org.");
}

TEST_F(StoredResponseTest, MismatchesAreToldApart) {
  const UpstreamMessage good = UpstreamMessage("www.example.org.", 1).a("www.example.org.", 60, {192, 0, 2, 1});
  EXPECT_EQ(read(good), UpstreamVerdict::kAccepted);
  EXPECT_EQ(read(UpstreamMessage("www.example.org.", 1, 0x8180, 0xbeee)), UpstreamVerdict::kMismatch) << "ID";
  EXPECT_EQ(read(UpstreamMessage("www.example.org.", 1, 0x0100)), UpstreamVerdict::kMismatch) << "QR";
  EXPECT_EQ(read(UpstreamMessage("www.example.org.", 1, 0xa180)), UpstreamVerdict::kMismatch) << "opcode";
  EXPECT_EQ(read(UpstreamMessage("www.example.net.", 1)), UpstreamVerdict::kMismatch) << "name";
  EXPECT_EQ(read(UpstreamMessage("www.example.org.", 28)), UpstreamVerdict::kMismatch) << "type";
  EXPECT_EQ(read(UpstreamMessage("www.example.org.", 1, 0x8380)), UpstreamVerdict::kTruncated);
  UpstreamMessage two = good;
  two.count(static_cast<UpstreamMessage::Section>(4));
  EXPECT_EQ(read(two), UpstreamVerdict::kMismatch) << "two questions";
}

TEST_F(StoredResponseTest, CutAnywhereItIsNeverAccepted) {
  const UpstreamMessage good = UpstreamMessage("www.example.org.", 1)
                                   .cname("www.example.org.", "b.example.org.")
                                   .a("b.example.org.", 60, {192, 0, 2, 1})
                                   .soa("example.org.", 60, 60);
  for (size_t size = 0; size < good.bytes.size(); ++size) {
    UpstreamMessage cut = good;
    cut.bytes.resize(size);
    EXPECT_NE(read(cut), UpstreamVerdict::kAccepted) << size;
  }
  EXPECT_EQ(read(good), UpstreamVerdict::kAccepted);
}

TEST_F(StoredResponseTest, BadRdataIsMalformed) {
  EXPECT_EQ(read(UpstreamMessage("www.example.org.", 1).a("www.example.org.", 60, {192, 0, 2})),
            UpstreamVerdict::kMalformed);
  UpstreamMessage cname("www.example.org.", 1);
  cname.record(UpstreamMessage::kAnswer, "www.example.org.", 5, 60, {3, 'a', 'b'});
  EXPECT_EQ(read(cname), UpstreamVerdict::kMalformed) << "a name that runs out of its RDATA";
  UpstreamMessage forward("www.example.org.", 1);
  forward.record(UpstreamMessage::kAnswer, "www.example.org.", 5, 60, {0xc0, 0xff});
  EXPECT_EQ(read(forward), UpstreamVerdict::kMalformed) << "a pointer forwards";
  UpstreamMessage header("www.example.org.", 1);
  header.record(UpstreamMessage::kAnswer, "www.example.org.", 5, 60, {0xc0, 0x02});
  EXPECT_EQ(read(header), UpstreamVerdict::kMalformed) << "a pointer into the header";
}

TEST_F(StoredResponseTest, CnameLoopsAndLongChainsEnd) {
  UpstreamMessage loop("www.example.org.", 1);
  loop.cname("www.example.org.", "b.example.org.").cname("b.example.org.", "www.example.org.");
  EXPECT_EQ(read(loop), UpstreamVerdict::kMalformed);
  UpstreamMessage chain("www.example.org.", 1);
  chain.cname("www.example.org.", "c0.example.org.");
  for (int i = 0; i < 40; ++i) {
    chain.cname("c" + std::to_string(i) + ".example.org.", "c" + std::to_string(i + 1) + ".example.org.");
  }
  EXPECT_EQ(read(chain), UpstreamVerdict::kMalformed);
}

// Thousands of records of a few bytes, each with a name of 255: as SRV, whose targets are never compressed, they would
// be a megabyte; as MX they shrink again, but each name has 120 labels to be looked for.
TEST_F(StoredResponseTest, CompressionBombsAreDefused) {
  for (const uint16_t type : {uint16_t{33}, uint16_t{15}}) {
    const size_t before = type == 33 ? 6 : 2;
    Message query("www.example.org.", type);
    dns::Query parsed;
    ASSERT_EQ(dns::parseQuery(query.data(), query.size(), Message::kSeed, parsed), dns::ParseOutcome::kQuery);
    UpstreamMessage upstream("www.example.org.", type);
    std::string long_name;
    for (int i = 0; i < 120; ++i) long_name += "x.";
    std::vector<uint8_t> rdata(before);
    const std::vector<uint8_t> target = UpstreamMessage::name(long_name);
    rdata.insert(rdata.end(), target.begin(), target.end());
    upstream.record(UpstreamMessage::kAnswer, "www.example.org.", type, 60, rdata);
    const size_t at = upstream.bytes.size() - target.size();
    uint8_t counter = 0;
    while (upstream.bytes.size() < 65000) {
      std::vector<uint8_t> bomb{0xc0, 12, 0, static_cast<uint8_t>(type),      0, 1, 0, 0,
                                0,    60, 0, static_cast<uint8_t>(before + 4)};
      bomb.resize(bomb.size() + before);
      for (const size_t byte : {size_t{1}, size_t{counter++}, 0xc0 | at >> 8, at & 0xff}) {
        bomb.push_back(static_cast<uint8_t>(byte));
      }
      upstream.count(UpstreamMessage::kAnswer).bytes.insert(upstream.bytes.end(), bomb.begin(), bomb.end());
    }
    response_.emplace();
    const auto start = std::chrono::steady_clock::now();
    const UpstreamVerdict verdict = readUpstreamResponse(upstream.bytes, kId, parsed, *response_);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
    EXPECT_EQ(verdict, type == 33 ? UpstreamVerdict::kMalformed : UpstreamVerdict::kAccepted);
    if (verdict == UpstreamVerdict::kAccepted) {
      EXPECT_LE(response_->packed->body().size(), size_t{66000});
    }
  }
}

TEST_F(StoredResponseTest, WhatDoesNotBelongToTheQuestionIsNotKept) {
  UpstreamMessage upstream("www.example.org.", 1);
  upstream.a("www.example.org.", 60, {192, 0, 2, 1})
      .a("bank.example.com.", 60, {192, 0, 2, 66})
      .record(UpstreamMessage::kAuthority, "com.", 2, 60, UpstreamMessage::name("ns.evil.example."))
      .record(UpstreamMessage::kAuthority, "example.org.", 2, 60, UpstreamMessage::name("ns.example.org."))
      .a("ns.example.org.", 60, {192, 0, 2, 53}, UpstreamMessage::kAdditional)
      .a("bank.example.com.", 60, {192, 0, 2, 66}, UpstreamMessage::kAdditional);
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  const auto records = write();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].owner, "www.example.org.");
  EXPECT_EQ(records[1].owner, "example.org.");
  EXPECT_EQ(records[2].owner, "ns.example.org.");
  EXPECT_EQ(records[3].type, 41);
  EXPECT_EQ(write({.minimal = true}).size(), 2u);
}

TEST_F(StoredResponseTest, DenialsLiveAsLongAsTheirSoaSays) {
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1, 0x8183).soa("example.org.", 900, 120)),
            UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->kind, ResponseKind::kNxDomain);
  EXPECT_EQ(response_->ttl_seconds, 120u);
  EXPECT_EQ(write({.age_seconds = 20}).at(0).ttl, 100u) << "the SOA's own TTL says no more";
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1).soa("example.org.", 60, 120)), UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->kind, ResponseKind::kNoData);
  EXPECT_EQ(response_->ttl_seconds, 60u);
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1, 0x8183)), UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->kind, ResponseKind::kUncacheable) << "no SOA";
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1, 0x8183).soa("example.net.", 900, 120)),
            UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->kind, ResponseKind::kUncacheable) << "the SOA of another name";
}

TEST_F(StoredResponseTest, TtlExtremes) {
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1).a("www.example.org.", 0, {192, 0, 2, 1})),
            UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->kind, ResponseKind::kUncacheable);
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1).a("www.example.org.", 0x80000001u, {192, 0, 2, 1})),
            UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->kind, ResponseKind::kUncacheable) << "RFC 2181 §8: the top bit makes it 0";
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1).a("www.example.org.", 0x7fffffffu, {192, 0, 2, 1})),
            UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->ttl_seconds, 0x7fffffffu);
}

TEST_F(StoredResponseTest, FailuresAndEde) {
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1, 0x8182)), UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->kind, ResponseKind::kFailure);
  EXPECT_EQ(write().size(), 1u);
  EXPECT_EQ(message_.rcode(), 2);
  UpstreamMessage ede("www.example.org.", 1, 0x8182);
  ede.count(UpstreamMessage::kAdditional).raw({0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 6, 0, 15, 0, 2, 0, 9});
  ASSERT_EQ(read(ede), UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->packed->ede, 9);
  UpstreamMessage empty("www.example.org.", 1, 0x8181);
  empty.bytes.resize(12);
  empty.bytes[5] = 0;
  ASSERT_EQ(read(empty), UpstreamVerdict::kAccepted) << "FORMERR without a question";
  EXPECT_EQ(response_->kind, ResponseKind::kFailure);
}

TEST_F(StoredResponseTest, WhatDoesNotFitIsTruncated) {
  UpstreamMessage upstream("www.example.org.", 1);
  for (uint8_t i = 0; i < 60; ++i) upstream.a("www.example.org.", 60, {192, 0, 2, i});
  upstream.record(UpstreamMessage::kAuthority, "example.org.", 2, 60, UpstreamMessage::name("ns.example.org."));
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  EXPECT_EQ(write({}, 1232).size(), 62u);
  EXPECT_EQ(write({}, 1010).size(), 61u) << "the authority section goes first, without TC";
  EXPECT_FALSE(message_.flag(dns::kFlagTc));
  const auto records = write({.age_seconds = 20}, 512);
  EXPECT_TRUE(message_.flag(dns::kFlagTc));
  ASSERT_EQ(records.size(), 1u) << "no part of an RRset";
  EXPECT_EQ(records.back().type, 41);
}

TEST_F(StoredResponseTest, WholeRrsetsInFrontOfWhatDoesNotFitStay) {
  UpstreamMessage upstream("www.example.org.", 1);
  upstream.cname("www.example.org.", "b.example.org.");
  upstream.cname("b.example.org.", "c.example.org.");
  for (uint8_t i = 0; i < 60; ++i) upstream.a("c.example.org.", 60, {192, 0, 2, i});
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  const auto records = write({.age_seconds = 20}, 512);
  EXPECT_TRUE(message_.flag(dns::kFlagTc));
  ASSERT_EQ(records.size(), 3u) << "the chain, and OPT";
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(records[i].type, 5);
    EXPECT_EQ(records[i].ttl, 280u);
  }
}

TEST_F(StoredResponseTest, LoadbalanceRotatesAddressesOnly) {
  UpstreamMessage upstream("www.example.org.", 1);
  upstream.cname("www.example.org.", "b.example.org.");
  for (uint8_t i = 1; i <= 3; ++i) upstream.a("b.example.org.", 60, {192, 0, 2, i});
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  for (uint8_t rotation = 1; rotation < 7; ++rotation) {
    const auto records = write({.addresses = {.rotation = rotation}});
    ASSERT_EQ(records.size(), 5u);
    EXPECT_EQ(records[0].type, 5);
    EXPECT_EQ(message_.rdata(records[1])[3], rotation % 3 + 1);
    EXPECT_EQ(message_.rdata(records[3])[3], (rotation + 2) % 3 + 1);
  }
}

TEST_F(StoredResponseTest, LoadbalancePrefersNetworksWithinARun) {
  UpstreamMessage upstream("www.example.org.", 1);
  upstream.cname("www.example.org.", "b.example.org.");
  for (uint8_t i = 1; i <= 4; ++i) upstream.a("b.example.org.", 60, {192, 0, 2, i});
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  const std::vector<IpNetwork> preferred{IpNetwork::parse("192.0.2.4").value(),
                                         IpNetwork::parse("192.0.2.2/31").value()};
  const auto records = write({.addresses = {.rotation = 2, .preferred = preferred}});
  ASSERT_EQ(records.size(), 6u);
  EXPECT_EQ(records[0].type, 5) << "aliases stay where they are";
  std::vector<int> last_bytes;
  for (size_t i = 1; i <= 4; ++i) last_bytes.push_back(message_.rdata(records[i])[3]);
  EXPECT_EQ(last_bytes, (std::vector<int>{4, 3, 2, 1})) << "rotated: 3 4 1 2";
}

TEST_F(StoredResponseTest, NamesInRdataAreExpandedAndStillRight) {
  ask("example.org.", 15);
  UpstreamMessage upstream("example.org.", 15);
  // MX whose exchange points to the question's name.
  upstream.record(UpstreamMessage::kAnswer, "example.org.", 15, 60, {0, 10, 2, 'm', 'x', 0xc0, 12});
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  const auto records = write();
  size_t exchange = records[0].rdata + 2;
  EXPECT_EQ(message_.nameAt(exchange), "mx.example.org.");

  ask("_s._tcp.example.org.", 33);
  UpstreamMessage srv("_s._tcp.example.org.", 33);
  srv.record(UpstreamMessage::kAnswer, "_s._tcp.example.org.", 33, 60, {0, 1, 0, 2, 0, 53, 2, 'm', 'x', 0xc0, 20});
  ASSERT_EQ(read(srv), UpstreamVerdict::kAccepted);
  const auto srv_records = write();
  EXPECT_EQ(srv_records[0].rdata_size, 6u + 16) << "RFC 2782: not compressed";
  size_t target = srv_records[0].rdata + 6;
  EXPECT_EQ(message_.nameAt(target), "mx.example.org.");
}

// --- chains that come in parts ---

class JoinTest : public StoredResponseTest {
 protected:
  // `first` to www.example.org. A, `second` to the target's A.
  bool join(const UpstreamMessage& first, const std::string& target, const UpstreamMessage& second) {
    StoredResponse aliases;
    EXPECT_EQ(readUpstreamResponse(first.bytes, kId, query_, aliases), UpstreamVerdict::kAccepted);
    EXPECT_EQ(aliases.kind, ResponseKind::kUncacheable);
    EXPECT_EQ(aliases.unfinished ? aliases.unfinished->toString() : "", target);
    Message target_message(target, 1, 4096);
    dns::Query target_query;
    dns::parseQuery(target_message.data(), target_message.size(), Message::kSeed, target_query);
    StoredResponse end;
    EXPECT_EQ(readUpstreamResponse(second.bytes, kId, target_query, end), UpstreamVerdict::kAccepted);
    response_.emplace();
    return joinResponses(query_, aliases, target_query, end, *response_);
  }
};

TEST_F(JoinTest, TheTargetsAnswerIsAdded) {
  ASSERT_TRUE(join(UpstreamMessage("www.example.org.", 1).cname("www.example.org.", "cdn.example.net.", 3600),
                   "cdn.example.net.",
                   UpstreamMessage("cdn.example.net.", 1)
                       .cname("cdn.example.net.", "a.cdn.example.net.", 300)
                       .a("a.cdn.example.net.", 30, {192, 0, 2, 7})));
  EXPECT_EQ(response_->kind, ResponseKind::kPositive);
  EXPECT_EQ(response_->ttl_seconds, 30u);
  EXPECT_FALSE(response_->unfinished);
  const auto records = write();
  ASSERT_GE(records.size(), 3u);
  EXPECT_EQ(records[0].owner, "www.example.org.");
  size_t pos = records[0].rdata;
  EXPECT_EQ(message_.nameAt(pos), "cdn.example.net.");
  EXPECT_EQ(records[1].owner, "cdn.example.net.");
  EXPECT_EQ(records[2].owner, "a.cdn.example.net.");
  EXPECT_EQ(message_.rdata(records[2]), (std::vector<uint8_t>{192, 0, 2, 7}));
}

TEST_F(JoinTest, TheTargetsDenialIsTheAnswer) {
  ASSERT_TRUE(join(UpstreamMessage("www.example.org.", 1).cname("www.example.org.", "no.example.net.", 3600),
                   "no.example.net.", UpstreamMessage("no.example.net.", 1, 0x8183).soa("example.net.", 600, 60)));
  EXPECT_EQ(response_->kind, ResponseKind::kNxDomain);
  EXPECT_EQ(response_->ttl_seconds, 60u);
  const auto records = write();
  EXPECT_EQ(message_.rcode(), 3);
  EXPECT_EQ(message_.answers(), 1);
  EXPECT_EQ(message_.authorities(), 1);
  EXPECT_EQ(records.at(1).owner, "example.net.");
}

TEST_F(JoinTest, AChainMayGoOnAndMustNotReturn) {
  const auto first = UpstreamMessage("www.example.org.", 1).cname("www.example.org.", "b.example.", 3600);
  ASSERT_TRUE(join(first, "b.example.", UpstreamMessage("b.example.", 1).cname("b.example.", "c.example.")));
  EXPECT_EQ(response_->unfinished->toString(), "c.example.");
  EXPECT_EQ(response_->kind, ResponseKind::kUncacheable);
  EXPECT_FALSE(join(first, "b.example.", UpstreamMessage("b.example.", 1).cname("b.example.", "www.example.ORG.")));
}

TEST_F(JoinTest, WhatIsDeniedIsNotUnfinished) {
  read(UpstreamMessage("www.example.org.", 1).cname("www.example.org.", "b.example.").soa("example.", 60, 60));
  EXPECT_FALSE(response_->unfinished);
  read(UpstreamMessage("www.example.org.", 1, 0x8183).cname("www.example.org.", "b.example."));
  EXPECT_FALSE(response_->unfinished);
  read(UpstreamMessage("www.example.org.", 1));
  EXPECT_FALSE(response_->unfinished);
  read(UpstreamMessage("www.example.org.", 1)
           .cname("www.example.org.", "b.example.")
           .a("b.example.", 5, {192, 0, 2, 1}));
  EXPECT_FALSE(response_->unfinished);
}

TEST_F(StoredResponseTest, TheFirstSignatureToEndCounts) {
  query_.dnssec_ok = true;
  const auto rrsig = [](uint32_t end) {
    std::vector<uint8_t> rdata{0, 1, 8, 2, 0, 0, 1, 44};
    for (int shift = 24; shift >= 0; shift -= 8) rdata.push_back(static_cast<uint8_t>(end >> shift));
    rdata.insert(rdata.end(), {0, 0, 0, 0, 0, 1, 0, 1, 2, 3});
    return rdata;
  };
  // As RFC 1982 compares: 0x10 comes behind 0xfffffff0.
  read(UpstreamMessage("www.example.org.", 1)
           .a("www.example.org.", 300, {192, 0, 2, 1})
           .record(UpstreamMessage::kAnswer, "www.example.org.", 46, 300, rrsig(0x10))
           .record(UpstreamMessage::kAnswer, "www.example.org.", 46, 300, rrsig(0xfffffff0)));
  EXPECT_EQ(response_->signature_end, 0xfffffff0u);
  query_.dnssec_ok = false;
  read(UpstreamMessage("www.example.org.", 1)
           .a("www.example.org.", 300, {192, 0, 2, 1})
           .record(UpstreamMessage::kAnswer, "www.example.org.", 46, 300, rrsig(0x10)));
  EXPECT_FALSE(response_->signature_end) << "it is not kept";
  EXPECT_EQ(signatureSecondsLeft(*response_), std::numeric_limits<uint32_t>::max());
}

TEST_F(StoredResponseTest, AdOnlyForThoseWhoKnowIt) {
  ASSERT_EQ(read(UpstreamMessage("www.example.org.", 1, 0x81a0).a("www.example.org.", 60, {192, 0, 2, 1})),
            UpstreamVerdict::kAccepted);
  write();
  EXPECT_FALSE(message_.flag(dns::kFlagAd));
  query_.flags |= dns::kFlagAd;
  write();
  EXPECT_TRUE(message_.flag(dns::kFlagAd));
}

// --- proofs ---

constexpr uint16_t kNs = 2;
constexpr uint16_t kSoa = 6;
constexpr uint16_t kRrsig = 46;
constexpr uint16_t kNsec = 47;

std::vector<uint8_t> rrsig(uint16_t covered, size_t size) {
  std::vector<uint8_t> rdata(size, 's');
  dns::store16(rdata.data(), covered);
  return rdata;
}

class ProofTest : public StoredResponseTest {
 protected:
  ProofTest() { query_.dnssec_ok = true; }

  // A name that a wildcard made: the servers come before the proof, as some write it.
  void readWildcard() {
    UpstreamMessage upstream("www.example.org.", 1);
    upstream.a("www.example.org.", 60, {192, 0, 2, 1})
        .record(UpstreamMessage::kAnswer, "www.example.org.", kRrsig, 60, rrsig(1, 100))
        .record(UpstreamMessage::kAuthority, "example.org.", kNs, 60, UpstreamMessage::name("ns.example.org."))
        .record(UpstreamMessage::kAuthority, "example.org.", kRrsig, 60, rrsig(kNs, 100))
        .record(UpstreamMessage::kAuthority, "a.example.org.", kNsec, 60, std::vector<uint8_t>(60, 'n'))
        .record(UpstreamMessage::kAuthority, "a.example.org.", kRrsig, 60, rrsig(kNsec, 100))
        .a("ns.example.org.", 60, {192, 0, 2, 53}, UpstreamMessage::kAdditional);
    ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
    ASSERT_EQ(response_->packed->authorities, 4);
    ASSERT_EQ(response_->packed->additionals, 1);
  }
  std::vector<uint16_t> types() const {
    std::vector<uint16_t> types;
    for (const auto& record : message_.records()) types.push_back(record.type);
    return types;
  }
  using Types = std::vector<uint16_t>;
};

TEST_F(ProofTest, WhatProvesNothingGoesFirstThenTheAnswerIsTruncated) {
  readWildcard();
  const dns::PackedResponse& view = *response_->packed;
  const size_t fixed = query_.question_end + dns::kOptSize;
  const struct {
    size_t limit;
    Types types;
    bool truncated;
  } cases[] = {
      {fixed + view.body().size(), {1, kRrsig, kNsec, kRrsig, kNs, kRrsig, 1, 41}, false},
      {fixed + view.body().size() - 1, {1, kRrsig, kNsec, kRrsig, kNs, kRrsig, 41}, false},
      {fixed + view.authority_end - 1, {1, kRrsig, kNsec, kRrsig, 41}, false},
      {fixed + view.proof_end, {1, kRrsig, kNsec, kRrsig, 41}, false},
      {fixed + view.proof_end - 1, {1, kRrsig, 41}, true},
  };
  for (const auto& c : cases) {
    ask("www.example.org.", 1);
    query_.dnssec_ok = true;
    write({}, c.limit);
    EXPECT_EQ(types(), c.types) << c.limit;
    EXPECT_EQ(message_.flag(dns::kFlagTc), c.truncated) << c.limit;
  }
}

TEST_F(ProofTest, MinimalKeepsProofs) {
  readWildcard();
  write({.minimal = true});
  EXPECT_EQ(types(), (Types{1, kRrsig, kNsec, kRrsig, 41}));
  EXPECT_EQ(message_.authorities(), 2);
  ask("www.example.org.", 1);
  query_.dnssec_ok = true;
  write({.minimal = true}, query_.question_end + dns::kOptSize + response_->packed->proof_end - 1);
  EXPECT_TRUE(message_.flag(dns::kFlagTc));
}

TEST_F(ProofTest, AChainToNowhereKeepsItsSoa) {
  for (const uint16_t rcode : {0, 3}) {
    ask("www.example.org.", 1);
    UpstreamMessage upstream("www.example.org.", 1, static_cast<uint16_t>(0x8180 | rcode));
    upstream.cname("www.example.org.", "nowhere.example.org.")
        .record(UpstreamMessage::kAuthority, "example.org.", kNs, 60, UpstreamMessage::name("ns.example.org."))
        .soa("example.org.", 300, 300);
    ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
    write({.minimal = true});
    EXPECT_EQ(types(), (Types{5, kSoa, 41}));
    EXPECT_FALSE(message_.flag(dns::kFlagTc));
    ask("www.example.org.", 1);
    write({}, query_.question_end + dns::kOptSize + response_->packed->proof_end);
    EXPECT_EQ(types(), (Types{5, kSoa, 41})) << "the servers go first";
    ask("www.example.org.", 1);
    write({}, query_.question_end + dns::kOptSize + response_->packed->proof_end - 1);
    EXPECT_EQ(types(), (Types{5, 41}));
    EXPECT_TRUE(message_.flag(dns::kFlagTc));
  }
}

// It must be asked anew when the alias ends, not when the denial of its target does (RFC 2308 §5).
TEST_F(StoredResponseTest, ADenialDoesNotOutliveItsAlias) {
  for (const uint16_t rcode : {0, 3}) {
    UpstreamMessage upstream("www.example.org.", 1, static_cast<uint16_t>(0x8180 | rcode));
    upstream.cname("www.example.org.", "nowhere.example.org.", 7).soa("example.org.", 900, 900);
    ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
    EXPECT_EQ(response_->kind, rcode == 3 ? ResponseKind::kNxDomain : ResponseKind::kNoData);
    EXPECT_EQ(response_->ttl_seconds, 7u);
  }
}

// --- hostile names ---

// Chains of pointers that end at the question's name, each record's owner at a deeper one; `tail` follows each owner.
std::vector<uint8_t> pointerChains(std::string_view qname, size_t links, size_t records,
                                   const std::vector<uint8_t>& tail) {
  UpstreamMessage upstream(qname, 1);
  const auto start = static_cast<uint16_t>(upstream.bytes.size() + 11);
  std::vector<uint8_t> chain(2 * links);
  for (size_t i = 0; i < links; ++i) {
    const size_t target = i == 0 ? dns::kHeaderSize : start + 2 * (i - 1);
    dns::store16(&chain[2 * i], static_cast<uint16_t>(0xc000 | target));
  }
  upstream.record(UpstreamMessage::kAnswer, ".", 16, 60, chain);  // a TXT of the root: room for the chain
  for (size_t i = 0; i < records; ++i) {
    const auto pointer = static_cast<uint16_t>(0xc000 | (start + 2 * (links - 1 - i % 2)));
    upstream.raw({static_cast<uint8_t>(pointer >> 8), static_cast<uint8_t>(pointer)});
    upstream.bytes.insert(upstream.bytes.end(), tail.begin(), tail.end());
    upstream.count(UpstreamMessage::kAnswer);
  }
  return upstream.bytes;
}

const std::vector<uint8_t> kAddressTail{0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1};

TEST_F(StoredResponseTest, ANameMayJumpAsOftenAsItMayHaveLabels) {
  response_.emplace();
  const auto most = pointerChains("www.example.org.", dns::kMaxJumps - 1, 1, kAddressTail);
  ASSERT_EQ(readUpstreamResponse(most, kId, query_, *response_), UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->packed->answers, 1);
  response_.emplace();
  const auto more = pointerChains("www.example.org.", dns::kMaxJumps, 1, kAddressTail);
  EXPECT_EQ(readUpstreamResponse(more, kId, query_, *response_), UpstreamVerdict::kMalformed);
}

// The work of a message is bounded, not only that of a name: 64 KB of the longest chains before names of 127 labels.
// (Without a bound it takes some 20 times as many steps as are allowed; that is seen by its being refused.)
TEST_F(StoredResponseTest, TheWorkOfAMessageIsBounded) {
  std::string longest;
  for (int i = 0; i < 127; ++i) longest += "a.";
  ask(longest, 14);
  const size_t links = dns::kMaxJumps - 1;
  std::vector<uint8_t> tail{0, 14, 0, 1, 0, 0, 0, 60, 0, 4, 0, 0, 0, 0};  // MINFO: two names
  UpstreamMessage upstream(longest, 14);
  const auto start = static_cast<uint16_t>(upstream.bytes.size() + 11);
  for (const size_t at : {10, 12}) dns::store16(&tail[at], static_cast<uint16_t>(0xc000 | (start + 2 * (links - 1))));
  auto bytes = pointerChains(longest, links, 3800, tail);
  dns::store16(&bytes[start - 11 - 4], 14);  // the question's type
  response_.emplace();
  ASSERT_LE(bytes.size(), dns::kMaxMessageSize);
  EXPECT_EQ(readUpstreamResponse(bytes, kId, query_, *response_), UpstreamVerdict::kMalformed);
}

// Real answers are far from that bound: 3,000 name servers in 64 KB.
TEST_F(StoredResponseTest, LargeAnswersAreWithinTheBound) {
  ask("example.org.", kNs);
  UpstreamMessage upstream("example.org.", kNs);
  for (int i = 0; i < 3000; ++i) {
    upstream.raw({0xc0,
                  0x0c,
                  0,
                  2,
                  0,
                  1,
                  0,
                  0,
                  0,
                  60,
                  0,
                  8,
                  5,
                  static_cast<uint8_t>('a' + i / 1000 % 10),
                  static_cast<uint8_t>('0' + i / 100 % 10),
                  static_cast<uint8_t>('0' + i / 10 % 10),
                  static_cast<uint8_t>('0' + i % 10),
                  'x',
                  0xc0,
                  0x0c});
    upstream.count(UpstreamMessage::kAnswer);
  }
  ASSERT_LE(upstream.bytes.size(), dns::kMaxMessageSize);
  ASSERT_EQ(read(upstream), UpstreamVerdict::kAccepted);
  EXPECT_EQ(response_->packed->answers, 3000);
}

// A denial that is kept for one name answers for a name below it: every pointer leads elsewhere then.
TEST(DenyBelow, IsTheDenialThatTheServerWouldHaveGiven) {
  const auto packed = [](const std::string& qname, const UpstreamMessage& upstream, auto&& use) {
    Message message(qname, 1, 1232);
    dns::Query query;
    dns::parseQuery(message.data(), message.size(), Message::kSeed, query);
    StoredResponse response;
    ASSERT_EQ(readUpstreamResponse(upstream.bytes, 0xbeef, query, response), UpstreamVerdict::kAccepted);
    use(query, response);
  };
  const auto denial = [](const std::string& qname) {
    return UpstreamMessage(qname, 1, 0x81a3).soa("example.", 900, 300);
  };
  packed("no.example.", denial("no.example."), [&](const dns::Query& above, const StoredResponse& kept) {
    packed("a.b.no.example.", denial("a.b.no.example."), [&](const dns::Query& below, const StoredResponse& expected) {
      StoredResponse made;
      ASSERT_TRUE(denyBelow(below, above.name(), *kept.packed, made));
      EXPECT_EQ(made.kind, ResponseKind::kNxDomain);
      EXPECT_EQ(made.ttl_seconds, 300u);
      EXPECT_TRUE(made.packed->authentic_data);
      EXPECT_TRUE(std::ranges::equal(made.packed->body(), expected.packed->body()));
      EXPECT_EQ(made.packed->counts(), expected.packed->counts());
    });
  });
}

}  // namespace
}  // namespace idetcd::resolver
