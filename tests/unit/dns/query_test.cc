#include "dns/query.h"

#include <cstring>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "message.h"

namespace idetcd::dns {
namespace {

using namespace test;

constexpr HashSeed kSeed = 0x1dc0de;
constexpr unsigned kA = 1;
constexpr unsigned kId = 0xbeef;
constexpr unsigned kRd = 0x0100;

// Parses from a buffer with exactly kReadSlack bytes behind the message, which AddressSanitizer guards.
struct Parsed {
  explicit Parsed(const std::string& message)
      : buffer(std::make_unique<uint8_t[]>(message.size() + kReadSlack)), size(message.size()) {
    std::memcpy(buffer.get(), message.data(), size);
    std::memset(buffer.get() + size, 0xa5, kReadSlack);
    outcome = parseQuery(buffer.get(), size, kSeed, query);
    EXPECT_EQ(text({buffer.get(), size}), message) << "parseQuery() changed the message";
  }
  bool isError(Rcode rcode) const { return outcome == ParseOutcome::kError && query.error == rcode; }

  std::unique_ptr<uint8_t[]> buffer;
  size_t size;
  Query query;
  ParseOutcome outcome;
};

const std::string kName = wireName("worker1.tf.local.");

std::string query(const std::string& qname = kName, unsigned type = kA, unsigned klass = 1) {
  return header(kId, kRd, {}) + question(qname, type, klass);
}
std::string queryWith(const std::string& additional, unsigned count = 1) {
  return header(kId, kRd, {.additionals = count}) + question(kName, kA) + additional;
}
std::string opcodeQuery(unsigned opcode) { return header(kId, opcode << 11, {}) + question(kName, 6); }

TEST(ParseQuery, ReadsAPlainQuery) {
  const Parsed p(query());
  ASSERT_EQ(p.outcome, ParseOutcome::kQuery);
  EXPECT_EQ(p.query.message, p.buffer.get());
  EXPECT_EQ(p.query.size, p.size);
  EXPECT_EQ(p.query.question_end, p.size);
  EXPECT_EQ(p.query.flags, kRd);
  EXPECT_EQ(p.query.opcode(), Opcode::kQuery);
  EXPECT_EQ(p.query.qtype, kA);
  EXPECT_EQ(p.query.qclass, 1);
  EXPECT_EQ(text(p.query.name()), kName);
  EXPECT_EQ(p.query.hash, hashBytes(kName.data(), kName.size(), kSeed));
  EXPECT_EQ(p.query.error, Rcode::kNoError);
  EXPECT_FALSE(p.query.has_edns);
  EXPECT_EQ(p.query.udp_payload, 512);
  EXPECT_EQ(p.query.tsig_offset, 0);
}

TEST(ParseQuery, FoldsTheNameAndLeavesTheMessage) {
  const Parsed p(query(wireName("WoRkEr1.TF.LOCAL.")));
  ASSERT_EQ(p.outcome, ParseOutcome::kQuery);
  EXPECT_EQ(text(p.query.name()), kName);
  EXPECT_EQ(p.query.hash, Parsed(query()).query.hash);
}

// Names of the usual sizes take a path of their own; a query that came before in the same place leaves nothing.
TEST(ParseQuery, NamesOfEverySizeAreFoldedAndHashedAlike) {
  for (size_t size = 3; size <= 255; ++size) {
    const std::string lower = wireNameOfSize(size);
    std::string mixed = lower;
    for (size_t i = 0; i < mixed.size(); i += 3) {
      if (mixed[i] == 'x') mixed[i] = 'X';
    }
    Parsed p(query(mixed, 28));
    ASSERT_EQ(p.outcome, ParseOutcome::kQuery) << size;
    EXPECT_EQ(text(p.query.name()), lower) << size;
    EXPECT_EQ(p.query.hash, hashBytes(lower.data(), lower.size(), kSeed)) << size;
    EXPECT_EQ(p.query.qtype, 28);
    EXPECT_EQ(p.query.question_end, p.size);

    const std::string broken = query(mixed).substr(0, p.size - 1);
    std::memcpy(p.buffer.get(), broken.data(), broken.size());
    EXPECT_EQ(parseQuery(p.buffer.get(), broken.size(), kSeed, p.query), ParseOutcome::kError);
    EXPECT_EQ(p.query.error, Rcode::kFormErr);
    EXPECT_EQ(p.query.question_end, kHeaderSize);
    EXPECT_EQ(p.query.qname_size, 0);
  }
}

TEST(ParseQuery, NulDotAndHighBytesAreOrdinary) {
  const std::string name = label(std::string("\0.\xff\xc1", 4)) + label("a.B") + '\0';
  const Parsed p(query(name));
  ASSERT_EQ(p.outcome, ParseOutcome::kQuery);
  EXPECT_EQ(text(p.query.name()), label(std::string("\0.\xff\xc1", 4)) + label("a.b") + '\0');
}

TEST(ParseQuery, ReadsTheRoot) {
  const Parsed p(query(std::string(1, '\0'), 2));
  ASSERT_EQ(p.outcome, ParseOutcome::kQuery);
  EXPECT_EQ(p.query.qname_size, 1);
}

TEST(ParseQuery, DropsWhatIsTooShortForAHeader) {
  for (size_t size = 0; size < kHeaderSize; ++size) {
    EXPECT_EQ(Parsed(query().substr(0, size)).outcome, ParseOutcome::kDrop) << size;
  }
}

TEST(ParseQuery, DropsResponses) {
  std::string message = query();
  message[2] = static_cast<char>(message[2] | 0x80);
  EXPECT_EQ(Parsed(message).outcome, ParseOutcome::kDrop);
  EXPECT_EQ(Parsed(header(kId, 0x8000, {.questions = 0})).outcome, ParseOutcome::kDrop);
  EXPECT_EQ(Parsed(header(kId, 0xffff, {.questions = 2})).outcome, ParseOutcome::kDrop);
}

TEST(ParseQuery, TruncatedAtEveryByte) {
  const std::string cookie = option(10, "12345678");
  const std::string tsig = record(wireName("key."), 250, 255, 0, wireName("hmac-sha256.") + std::string(16, '\0'));
  const std::string whole = header(kId, kRd, {.answers = 1, .authorities = 1, .additionals = 3}) + question(kName, kA) +
                            record(std::string("\xc0\x0c", 2), 1, 1, 5, "\1\2\3\4") +
                            record(wireName("a.b."), 6, 1, 5, "whatever") + record(kName, 16, 1, 5, "") +
                            opt(1232, 0x8000, cookie) + tsig;
  const size_t question_end = kHeaderSize + kName.size() + 4;
  for (size_t size = kHeaderSize; size < whole.size(); ++size) {
    const Parsed p(whole.substr(0, size));
    EXPECT_TRUE(p.isError(Rcode::kFormErr)) << size;
    EXPECT_EQ(p.query.question_end, size < question_end ? kHeaderSize : question_end) << size;
  }
  const Parsed p(whole);
  EXPECT_TRUE(p.isError(Rcode::kNotAuth));
  EXPECT_EQ(p.query.tsig_offset, whole.size() - tsig.size());
  EXPECT_TRUE(p.query.dnssec_ok);
}

TEST(ParseQuery, QuestionCount) {
  EXPECT_TRUE(Parsed(header(kId, 0, {.questions = 0})).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(header(kId, 0, {.questions = 0}) + question(kName, kA)).isError(Rcode::kFormErr));
  const Parsed two(header(kId, 0, {.questions = 2}) + question(kName, kA) + question(kName, kA));
  EXPECT_TRUE(two.isError(Rcode::kFormErr));
  EXPECT_EQ(two.query.question_end, kHeaderSize);
  EXPECT_TRUE(Parsed(header(kId, 0, {.questions = 65535}) + question(kName, kA)).isError(Rcode::kFormErr));
}

// RFC 7873 §5.4
TEST(ParseQuery, NoQuestionWithACookieIsAQueryForACookie) {
  const std::string head = header(kId, 0, {.questions = 0, .additionals = 1});
  const Parsed p(head + opt(1232, 0, option(10, "12345678")));
  EXPECT_TRUE(p.isError(Rcode::kNoError));
  EXPECT_TRUE(p.query.has_edns);
  EXPECT_EQ(p.query.question_end, kHeaderSize);
  EXPECT_TRUE(Parsed(head + opt(1232)).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(head + opt(1232, 0, option(3, ""))).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(head + opt(1232, 0, option(10, "1234567"))).isError(Rcode::kFormErr));
}

TEST(ParseQuery, NameLength) {
  for (size_t size = 240; size <= 320; ++size) {
    const Parsed p(query(wireNameOfSize(size)));
    if (size <= 255) {
      EXPECT_EQ(p.outcome, ParseOutcome::kQuery) << size;
      EXPECT_EQ(p.query.qname_size, size);
    } else {
      EXPECT_TRUE(p.isError(Rcode::kFormErr)) << size;
      EXPECT_EQ(p.query.question_end, kHeaderSize);
    }
  }
}

TEST(ParseQuery, LabelTypes01And10AndPointersInTheQuestion) {
  for (unsigned first = 64; first < 256; ++first) {
    for (const std::string& before : {std::string(), label("worker1")}) {
      const std::string name = before + static_cast<char>(first) + std::string("\x0c\0", 2);
      const Parsed p(query(name) + std::string(300, '\0'));
      EXPECT_TRUE(p.isError(Rcode::kFormErr)) << first;
      EXPECT_EQ(p.query.question_end, kHeaderSize);
    }
  }
}

TEST(ParseQuery, PointersInRecords) {
  const auto withOwner = [](const std::string& owner) {
    return Parsed(queryWith(record(owner, 16, 1, 0, ""))).outcome == ParseOutcome::kQuery;
  };
  const auto pointer = [](size_t target) { return be16(static_cast<unsigned>(0xc000 | target)); };
  const size_t owner = query().size();
  EXPECT_TRUE(withOwner(pointer(12)));
  EXPECT_TRUE(withOwner(label("a") + pointer(12)));
  EXPECT_TRUE(withOwner(pointer(owner - 1)));
  EXPECT_FALSE(withOwner(pointer(owner)));               // itself
  EXPECT_FALSE(withOwner(label("a") + pointer(owner)));  // its own name: a loop
  EXPECT_FALSE(withOwner(label("a") + pointer(owner + 1)));
  EXPECT_FALSE(withOwner(pointer(owner + 2)));  // forward
  EXPECT_FALSE(withOwner(pointer(0x3fff)));
  EXPECT_FALSE(withOwner(pointer(0)));  // the header
  EXPECT_FALSE(withOwner(pointer(11)));
  EXPECT_FALSE(withOwner("\x40"));
  EXPECT_FALSE(withOwner("\x80"));
  EXPECT_TRUE(withOwner(wireNameOfSize(255)));
  EXPECT_FALSE(withOwner(wireNameOfSize(256)));
  EXPECT_FALSE(withOwner(wireNameOfSize(300)));
}

TEST(ParseQuery, ReadsEdns) {
  const Parsed p(queryWith(opt(4096, 0x8000)));
  ASSERT_EQ(p.outcome, ParseOutcome::kQuery);
  EXPECT_TRUE(p.query.has_edns);
  EXPECT_TRUE(p.query.dnssec_ok);
  EXPECT_EQ(p.query.udp_payload, 4096);
  EXPECT_FALSE(Parsed(queryWith(opt(4096))).query.dnssec_ok);
}

TEST(ParseQuery, UnknownFlagsAndOptionsAreIgnored) {
  const Parsed flags(queryWith(opt(1232, 0x7fff)));
  EXPECT_EQ(flags.outcome, ParseOutcome::kQuery);
  EXPECT_FALSE(flags.query.dnssec_ok);
  EXPECT_EQ(Parsed(queryWith(opt(1232, 0xff000000))).outcome, ParseOutcome::kQuery);  // an extended rcode means nothing
  EXPECT_EQ(Parsed(queryWith(opt(1232, 0, option(65001, "abc") + option(0, "")))).outcome, ParseOutcome::kQuery);
}

TEST(ParseQuery, PayloadBelow512IsTakenAs512) {
  for (const unsigned payload : {0u, 1u, 511u, 512u}) {
    EXPECT_EQ(Parsed(queryWith(opt(payload))).query.udp_payload, 512) << payload;
  }
  EXPECT_EQ(Parsed(queryWith(opt(513))).query.udp_payload, 513);
  EXPECT_EQ(Parsed(queryWith(opt(65535))).query.udp_payload, 65535);
}

TEST(ParseQuery, OptMustBeOneAtTheRootInTheAdditionalSection) {
  EXPECT_TRUE(Parsed(queryWith(opt(1232) + opt(1232), 2)).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(queryWith(record(wireName("a."), 41, 1232, 0, ""))).isError(Rcode::kFormErr));
  // A pointer to the root label of the question is not the root label itself.
  const auto root = static_cast<unsigned>(kHeaderSize + kName.size() - 1);
  EXPECT_TRUE(Parsed(queryWith(record(be16(0xc000 | root), 41, 1232, 0, ""))).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(header(kId, 0, {.answers = 1}) + question(kName, kA) + opt(1232)).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(header(kId, 0, {.authorities = 1}) + question(kName, kA) + opt(1232)).isError(Rcode::kFormErr));
}

TEST(ParseQuery, OptNeedNotBeTheLastOrTheOnlyRecord) {
  const std::string other = record(wireName("a."), 1, 1, 0, "\1\2\3\4");
  EXPECT_EQ(Parsed(queryWith(opt(1232) + other, 2)).outcome, ParseOutcome::kQuery);
  EXPECT_EQ(Parsed(queryWith(other + opt(1232), 2)).outcome, ParseOutcome::kQuery);
}

TEST(ParseQuery, OptionsThatOverrun) {
  for (const std::string& options :
       {std::string("\0", 1), std::string("\0\x0a\0", 3), option(3, "abc") + "\xff", be16(3) + be16(1),
        be16(3) + be16(65535) + "abc", option(3, "") + be16(9) + be16(2) + "a"}) {
    const Parsed p(queryWith(opt(1232, 0, options)));
    EXPECT_TRUE(p.isError(Rcode::kFormErr)) << options.size();
    EXPECT_TRUE(p.query.has_edns);  // so the FORMERR carries an OPT
  }
  // RDLENGTH beyond the message
  std::string message = queryWith(opt(1232));
  message.back() = 1;
  EXPECT_TRUE(Parsed(message).isError(Rcode::kFormErr));
}

// RFC 7873 §5.2: 8 bytes of the client's, or 8 and 8 to 32 of the server's.
TEST(ParseQuery, CookieLengths) {
  for (size_t size = 0; size <= 48; ++size) {
    const Parsed p(queryWith(opt(1232, 0, option(10, std::string(size, 'c')))));
    if (size == 8 || (size >= 16 && size <= 40)) {
      EXPECT_EQ(p.outcome, ParseOutcome::kQuery) << size;
    } else {
      EXPECT_TRUE(p.isError(Rcode::kFormErr)) << size;
    }
  }
}

// A server cookie of ours has 16 bytes: what is longer or shorter is somebody else's.
TEST(ParseQuery, CookieIsNoted) {
  using Judgement = Cookie::Judgement;
  EXPECT_FALSE(Parsed(queryWith(opt(1232, 0, option(3, "")))).query.asksFor(kAsksCookie));
  for (const auto& [size, judgement] :
       {std::pair{0, Judgement::kNew}, {8, Judgement::kBad}, {16, Judgement::kUnjudged}, {32, Judgement::kBad}}) {
    const std::string server = std::string("sixteen bytes of, and then more").substr(0, static_cast<size_t>(size));
    const std::string data = "12345678" + server + std::string(static_cast<size_t>(size) - server.size(), 'x');
    const Parsed p(queryWith(opt(1232, 0, option(3, "") + option(10, data))));
    EXPECT_TRUE(p.query.asksFor(kAsksCookie) && p.query.asksFor(kAsksNsid));
    const Cookie& cookie = p.query.cookie;
    EXPECT_EQ(std::string(cookie.client.begin(), cookie.client.end()), "12345678");
    EXPECT_EQ(cookie.judgement, judgement) << size;
    EXPECT_FALSE(cookie.in_response || p.query.hasGoodCookie());
    if (judgement == Judgement::kUnjudged) {
      EXPECT_EQ(std::string(cookie.server.begin(), cookie.server.end()), "sixteen bytes of");
    }
  }
  EXPECT_FALSE(Parsed(queryWith(opt(1232, 0, option(10, "12345678") + "x"))).query.asksFor(kAsksCookie))
      << "of what cannot be read nothing is taken";
}

// RFC 7828 §3.2.1: a query has no time-out in it. Whether that matters depends on what it came over.
TEST(ParseQuery, KeepaliveIsNoted) {
  const auto asked = [](const std::string& options) {
    const Parsed p(queryWith(opt(1232, 0, options)));
    EXPECT_EQ(p.outcome, ParseOutcome::kQuery);
    return p.query.asked_options;
  };
  EXPECT_EQ(asked(option(11, "")), kAsksKeepalive);
  EXPECT_EQ(asked(option(3, "") + option(11, "")), kAsksNsid | kAsksKeepalive);
  for (const std::string data : {"1", "12", "123"}) EXPECT_EQ(asked(option(11, data)), kMisusesKeepalive);
}

TEST(ParseQuery, PaddingIsNoted) {
  for (const std::string& data : {std::string(), std::string(100, '\0')})
    EXPECT_EQ(Parsed(queryWith(opt(1232, 0, option(12, data)))).query.asked_options, kAsksPadding);
}

// RFC 7873 §5.2: "only the first … is considered. All others are ignored".
TEST(ParseQuery, OfTwoCookiesTheFirstCounts) {
  EXPECT_EQ(Parsed(queryWith(opt(1232, 0, option(10, "12345678") + option(10, "x")))).outcome, ParseOutcome::kQuery);
  EXPECT_TRUE(Parsed(queryWith(opt(1232, 0, option(10, "x") + option(10, "12345678")))).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(queryWith(opt(1232, 0, option(10, "12345678") + be16(10) + be16(8)))).isError(Rcode::kFormErr));
}

TEST(ParseQuery, HundredsOfOptionsAndRecords) {
  std::string options;
  for (int i = 0; i < 800; ++i) options += option(10, "12345678");
  EXPECT_EQ(Parsed(queryWith(opt(1232, 0, options))).outcome, ParseOutcome::kQuery);
  options.clear();
  while (options.size() + 4 <= 65000) options += option(65001, "");
  EXPECT_EQ(Parsed(queryWith(opt(1232, 0, options))).outcome, ParseOutcome::kQuery);

  std::string records;
  unsigned count = 0;
  for (; records.size() + 11 < 65000; ++count) records += record(std::string(1, '\0'), 16, 1, 0, "");
  EXPECT_EQ(Parsed(queryWith(records, count)).outcome, ParseOutcome::kQuery);
}

TEST(ParseQuery, CountsThatPromiseMoreThanThereIs) {
  for (const Counts counts : {Counts{.answers = 1}, Counts{.authorities = 1}, Counts{.additionals = 1},
                              Counts{.answers = 65535, .authorities = 65535, .additionals = 65535}}) {
    EXPECT_TRUE(Parsed(header(kId, 0, counts) + question(kName, kA)).isError(Rcode::kFormErr));
  }
}

TEST(ParseQuery, TheLargestMessage) {
  const std::string plain = queryWith("");
  const std::string rdata(65535 - plain.size() - 11, 'x');
  const Parsed p(plain + record(std::string(1, '\0'), 16, 1, 0, rdata));
  EXPECT_EQ(p.size, 65535u);
  EXPECT_EQ(p.outcome, ParseOutcome::kQuery);
}

TEST(ParseQuery, EdnsVersion) {
  for (const uint32_t version : {1u, 2u, 255u}) {
    const Parsed p(queryWith(opt(4096, version << 16 | 0x8000, "not options")));  // which are not looked at
    EXPECT_TRUE(p.isError(Rcode::kBadVers)) << version;
    EXPECT_TRUE(p.query.has_edns);
    EXPECT_TRUE(p.query.dnssec_ok);
    EXPECT_EQ(p.query.udp_payload, 4096);
  }
  // A query that cannot be read is a format error whatever its version is.
  EXPECT_TRUE(Parsed(queryWith(opt(4096, 1u << 16) + "\x40", 2)).isError(Rcode::kFormErr));
}

TEST(ParseQuery, OtherOpcodes) {
  for (unsigned opcode = 1; opcode < 16; ++opcode) {
    const Parsed p(opcodeQuery(opcode));
    EXPECT_TRUE(p.isError(Rcode::kNotImp)) << opcode;
    EXPECT_EQ(p.query.question_end, p.size);
    // Their sections are theirs: what is wrong with them is not ours to say.
    EXPECT_TRUE(Parsed(header(kId, opcode << 11, {.questions = 0})).isError(Rcode::kNotImp));
    EXPECT_TRUE(Parsed(header(kId, opcode << 11, {.questions = 9})).isError(Rcode::kNotImp));
    EXPECT_TRUE(Parsed(header(kId, opcode << 11, {}) + "\xc0").isError(Rcode::kNotImp));
    const Parsed edns(header(kId, opcode << 11, {.additionals = 1}) + question(kName, 6) + opt(1232, 1u << 16));
    EXPECT_TRUE(edns.isError(Rcode::kNotImp));
    EXPECT_TRUE(edns.query.has_edns);
  }
}

TEST(ParseQuery, QuestionTypesThatAreNoQuestions) {
  const auto outcome = [](unsigned type) {
    const Parsed p(query(kName, type));
    EXPECT_EQ(p.query.question_end, p.size);
    return p.outcome == ParseOutcome::kQuery ? Rcode::kNoError : p.query.error;
  };
  EXPECT_EQ(outcome(0), Rcode::kFormErr);
  EXPECT_EQ(outcome(41), Rcode::kFormErr);   // OPT
  EXPECT_EQ(outcome(128), Rcode::kFormErr);  // NXNAME (RFC 9824 §3.5)
  EXPECT_EQ(outcome(250), Rcode::kFormErr);  // TSIG
  EXPECT_EQ(outcome(249), Rcode::kNotImp);   // TKEY
  for (const unsigned transfer : {251u, 252u}) {  // IXFR, AXFR: where nobody transfers the zone
    EXPECT_EQ(Parsed(query(kName, transfer)).outcome, ParseOutcome::kTransfer);
    EXPECT_EQ(outcome(transfer), Rcode::kRefused);
  }
  EXPECT_EQ(outcome(253), Rcode::kNotImp);   // MAILB
  EXPECT_EQ(outcome(254), Rcode::kNotImp);   // MAILA
  EXPECT_EQ(outcome(255), Rcode::kNoError);  // ANY: who answers decides
  EXPECT_EQ(outcome(1), Rcode::kNoError);
  EXPECT_EQ(outcome(65535), Rcode::kNoError);
}

TEST(ParseQuery, OtherClassesAreQueries) {
  for (const unsigned klass : {0u, 3u, 4u, 254u, 255u, 65535u}) {
    const Parsed p(query(kName, 16, klass));
    EXPECT_EQ(p.outcome, ParseOutcome::kQuery);
    EXPECT_EQ(p.query.qclass, klass);
  }
}

TEST(ParseQuery, TsigOfAnUnknownKey) {
  const std::string tsig = record(wireName("key."), 250, 255, 0, wireName("hmac-sha256.") + std::string(16, '\0'));
  const Parsed p(queryWith(tsig));
  EXPECT_TRUE(p.isError(Rcode::kNotAuth));
  EXPECT_EQ(p.query.tsig_offset, query().size());
  EXPECT_TRUE(Parsed(queryWith(opt(1232) + tsig, 2)).isError(Rcode::kNotAuth));
}

// RFC 8945 §5.2
TEST(ParseQuery, TsigMustBeOneAndTheLastRecord) {
  const std::string tsig = record(wireName("key."), 250, 255, 0, wireName("hmac-sha256.") + std::string(16, '\0'));
  EXPECT_TRUE(Parsed(queryWith(tsig + opt(1232), 2)).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(queryWith(tsig + tsig, 2)).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(header(kId, 0, {.answers = 1}) + question(kName, kA) + tsig).isError(Rcode::kFormErr));
  EXPECT_TRUE(Parsed(header(kId, 0, {.authorities = 1}) + question(kName, kA) + tsig).isError(Rcode::kFormErr));
}

TEST(ParseQuery, NothingIsLeftOfTheQueryBefore) {
  Parsed p(
      queryWith(opt(4096, 0x8000) + record(wireName("key."), 250, 255, 0, wireName("x.") + std::string(16, '\0')), 2));
  ASSERT_TRUE(p.isError(Rcode::kNotAuth));
  const std::string next = header(kId, 0, {.questions = 0});
  std::memcpy(p.buffer.get(), next.data(), next.size());
  EXPECT_EQ(parseQuery(p.buffer.get(), next.size(), kSeed, p.query), ParseOutcome::kError);
  EXPECT_EQ(p.query.error, Rcode::kFormErr);
  EXPECT_EQ(p.query.question_end, kHeaderSize);
  EXPECT_EQ(p.query.qname_size, 0);
  EXPECT_EQ(p.query.qtype, 0);
  EXPECT_FALSE(p.query.has_edns);
  EXPECT_FALSE(p.query.dnssec_ok);
  EXPECT_EQ(p.query.udp_payload, 512);
  EXPECT_EQ(p.query.tsig_offset, 0);
}

}  // namespace
}  // namespace idetcd::dns
