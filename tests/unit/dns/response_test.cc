#include "dns/response.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "message.h"

namespace idetcd::dns {
namespace {

using namespace test;

constexpr unsigned kId = 0xbeef;
const std::string kName = wireName("WorKer1.tf.local.");
const std::string kPointer("\xc0\x0c", 2);
const std::string kAnswer = record(kPointer, 1, 1, 5, "\x0a\x01\x02\x03");
const std::string kSoa = record(kPointer, 6, 1, 5, std::string(22, 's'));

// A parsed query in a buffer of exactly the bytes that a response may take, on the heap: AddressSanitizer guards it.
struct Exchange {
  explicit Exchange(const std::string& message, size_t response_limit = 512)
      : limit(response_limit), buffer(std::make_unique<uint8_t[]>(std::max(limit, message.size() + kReadSlack))) {
    std::memcpy(buffer.get(), message.data(), message.size());
    outcome = parseQuery(buffer.get(), message.size(), 1, query);
  }
  std::string bytes(size_t size) const { return text({buffer.get(), size}); }
  ReadMessage read(size_t size) const {
    EXPECT_LE(size, limit);
    const auto message = MessageReader::read({buffer.get(), size});
    EXPECT_TRUE(message.has_value()) << "not a well-formed message";
    return message.value_or(ReadMessage{});
  }
  ReadMessage readError() {
    EXPECT_TRUE(outcome == ParseOutcome::kError || outcome == ParseOutcome::kTransfer);
    return read(writeErrorResponse(query, limit));
  }

  size_t limit;
  std::unique_ptr<uint8_t[]> buffer;
  Query query;
  ParseOutcome outcome;
};

std::string query(unsigned flags = 0x0100) { return header(kId, flags, {}) + question(kName, 1); }
std::string ednsQuery(uint32_t ttl = 0, std::string_view options = {}) {
  return header(kId, 0x0100, {.additionals = 1}) + question(kName, 1) + opt(4096, ttl, options);
}

TEST(ResponseBuilder, WritesAnAnswerByteForByte) {
  Exchange e(query());
  ResponseBuilder response(e.query, e.limit);
  response.addAnswer(bytes(kAnswer), 1);
  const size_t size = response.finish(Rcode::kNoError, kFlagAa);
  EXPECT_EQ(e.bytes(size), header(kId, 0x8500, {.answers = 1}) + question(kName, 1) + kAnswer);
}

TEST(ResponseBuilder, WritesEverySectionByteForByte) {
  Exchange e(ednsQuery(0x8000));
  ResponseBuilder response(e.query, e.limit);
  response.addAnswer(bytes(kAnswer + kAnswer), 2);
  response.addAuthority(bytes(kSoa), 1);
  response.addAdditional(bytes(kAnswer), 1);
  const size_t size = response.finish(Rcode::kNoError, kFlagAa | kFlagRa);
  EXPECT_EQ(e.bytes(size), header(kId, 0x8580, {.answers = 2, .authorities = 1, .additionals = 2}) +
                               question(kName, 1) + kAnswer + kAnswer + kSoa + kAnswer + opt(1232, 0x8000));
}

TEST(ResponseBuilder, HeaderBits) {
  for (unsigned flags = 0; flags < 0x8000; flags += 0x10) {
    if ((flags & 0x7800) != 0) continue;
    Exchange e(query(flags));
    ASSERT_EQ(e.outcome, ParseOutcome::kQuery);
    const ReadMessage message = e.read(ResponseBuilder(e.query, e.limit).finish(Rcode::kNxDomain, kFlagAa));
    // The client's RD and CD; not its AA, TC, RA, Z or AD, nor its rcode.
    EXPECT_EQ(message.flags, 0x8403u | (flags & 0x0110)) << flags;
    EXPECT_EQ(message.id, kId);
  }
}

TEST(ResponseBuilder, NoOptWithoutOne) {
  Exchange e(query());
  ResponseBuilder response(e.query, e.limit);
  response.setEde(EdeCode::kNotReady);
  const ReadMessage message = e.read(response.finish(Rcode::kServFail, 0));
  EXPECT_TRUE(message.additionals.empty());
  EXPECT_EQ(message.rcode(), 2u);
  EXPECT_EQ(message.questions, std::vector{question(kName, 1)});
}

TEST(ResponseBuilder, OptEchoesDoAndNothingElse) {
  for (const uint32_t ttl : {0x8000u, 0u, 0xffffu, 0x7fffu}) {
    Exchange e(ednsQuery(ttl, option(65001, "x") + option(3, "")));
    const ReadMessage message = e.read(ResponseBuilder(e.query, e.limit).finish(Rcode::kNoError, 0));
    ASSERT_NE(message.opt(), nullptr);
    EXPECT_EQ(message.opt()->owner, std::string(1, '\0'));
    EXPECT_EQ(message.opt()->klass, kDefaultUdpPayload);
    EXPECT_EQ(message.opt()->ttl, ttl & 0x8000);
    EXPECT_EQ(message.opt()->rdata, "");
  }
}

TEST(ResponseBuilder, ExtendedErrors) {
  Exchange e(ednsQuery());
  ResponseBuilder response(e.query, e.limit);
  response.setEde(EdeCode::kNotReady);
  response.setEde(EdeCode::kStaleAnswer);  // the first one stays
  response.addAnswer(bytes(kAnswer), 1);
  const ReadMessage message = e.read(response.finish(Rcode::kServFail, 0));
  ASSERT_NE(message.opt(), nullptr);
  EXPECT_EQ(message.opt()->rdata, option(15, be16(14)));
}

TEST(ResponseBuilder, ExtendedRcode) {
  Exchange e(ednsQuery());
  const ReadMessage message = e.read(ResponseBuilder(e.query, e.limit).finish(Rcode::kBadVers, 0));
  EXPECT_EQ(message.rcode(), 0u);
  ASSERT_NE(message.opt(), nullptr);
  EXPECT_EQ(message.opt()->ttl, 0x01000000u);  // 16 = 1 << 4 | 0; version 0
}

// Answers of every size around the limit: as it stands, or TC with the question and OPT alone.
TEST(ResponseBuilder, TruncatesToQuestionAndOpt) {
  for (const bool edns : {false, true}) {
    for (const bool ede : {false, true}) {
      const std::string message = edns ? ednsQuery(0x8000) : query();
      const size_t fixed = query().size() + (edns ? 11 : 0) + (edns && ede ? 6 : 0);
      for (size_t rdata_size = 380; rdata_size <= 480; ++rdata_size) {
        Exchange e(message);
        ResponseBuilder response(e.query, e.limit);
        if (ede) response.setEde(EdeCode::kStaleAnswer);
        const std::string answer = record(kPointer, 16, 1, 5, std::string(rdata_size, 't'));
        response.addAnswer(bytes(answer), 1);
        const size_t size = response.finish(Rcode::kNoError, kFlagAa);
        const ReadMessage read = e.read(size);
        const bool fits = fixed + answer.size() <= 512;
        EXPECT_EQ(read.has(0x0200), !fits) << rdata_size;
        EXPECT_EQ(read.answers.size(), fits ? 1u : 0u);
        EXPECT_EQ(size, fits ? fixed + answer.size() : fixed);
        EXPECT_EQ(read.questions, std::vector{question(kName, 1)});
        EXPECT_EQ(read.opt() != nullptr, edns);
      }
    }
  }
}

TEST(ResponseBuilder, OneSectionThatDoesNotFitTakesAllWithIt) {
  const std::string big = record(kPointer, 16, 1, 5, std::string(500, 't'));
  {
    Exchange e(ednsQuery());
    ResponseBuilder response(e.query, e.limit);
    response.addAnswer(bytes(kAnswer), 1);
    response.addAuthority(bytes(big), 1);
    response.addAdditional(bytes(kAnswer), 1);
    const ReadMessage read = e.read(response.finish(Rcode::kNoError, 0));
    EXPECT_TRUE(read.has(0x0200));
    EXPECT_TRUE(read.answers.empty() && read.authorities.empty());
    EXPECT_EQ(read.additionals.size(), 1u);
  }
  {
    Exchange e(ednsQuery());
    ResponseBuilder response(e.query, e.limit);
    response.addAnswer(bytes(big), 1);
    response.addAuthority(bytes(kSoa), 1);  // would fit
    const ReadMessage read = e.read(response.finish(Rcode::kNoError, 0));
    EXPECT_TRUE(read.has(0x0200));
    EXPECT_TRUE(read.answers.empty() && read.authorities.empty());
  }
}

TEST(ResponseBuilder, AdditionalIsLeftOutSilently) {
  Exchange e(ednsQuery());
  ResponseBuilder response(e.query, e.limit);
  response.addAnswer(bytes(kAnswer), 1);
  EXPECT_FALSE(response.addAdditional(bytes(record(kPointer, 16, 1, 5, std::string(500, 't'))), 1));
  EXPECT_TRUE(response.addAdditional(bytes(kAnswer), 1));
  const ReadMessage read = e.read(response.finish(Rcode::kNoError, 0));
  EXPECT_FALSE(read.has(0x0200));
  EXPECT_EQ(read.answers.size(), 1u);
  EXPECT_EQ(read.additionals.size(), 2u);  // the one that fits, and OPT
}

TEST(ResponseBuilder, PositionAndPatching) {
  Exchange e(query());
  ResponseBuilder response(e.query, e.limit);
  const size_t at = response.position();
  EXPECT_EQ(at, query().size());
  response.addAnswer(bytes(kAnswer), 1);
  EXPECT_EQ(response.position(), at + kAnswer.size());
  store32(response.at(at + 6), 77);
  EXPECT_EQ(e.read(response.finish(Rcode::kNoError, 0)).answers.at(0).ttl, 77u);
}

TEST(ResponseBuilder, TheLongestNameFitsTheSmallestLimit) {
  const std::string name = wireNameOfSize(255);
  Exchange e(header(kId, 0, {.additionals = 1}) + question(name, 1) + opt(512));
  ResponseBuilder response(e.query, e.limit);
  response.setEde(EdeCode::kStaleAnswer);
  response.addAnswer(bytes(kAnswer), 1);
  const ReadMessage read = e.read(response.finish(Rcode::kNoError, 0));
  EXPECT_EQ(read.answers.size(), 1u);
  EXPECT_EQ(read.answers.at(0).owner, name);
}

void askForNsid(Query& query, const std::string& nsid) {
  query.asked_options |= kAsksNsid;
  query.nsid = &nsid;
}

const std::string kClientCookie = "12345678";
const std::string kServerCookie = "sixteen bytes of";
void askForCookie(Query& query) {
  query.asked_options |= kAsksCookie;
  std::ranges::copy(kClientCookie, query.cookie.client.begin());
  std::ranges::copy(kServerCookie, query.cookie.server.begin());
  query.cookie.in_response = true;
}

// Names and NSIDs of every length: what does not fit is left out, and the answer comes first.
TEST(ResponseBuilder, NsidGivesWay) {
  const std::string big = record(kPointer, 16, 1, 5, std::string(100, 't'));
  for (size_t name_size = 3; name_size <= 255; name_size += 4) {
    for (const size_t nsid_size : {1, 16, 100, 200, 219, 240, 255, 512, 4000}) {
      for (const bool ede : {false, true}) {
        const std::string nsid(nsid_size, 'n');
        Exchange e(header(kId, 0, {.additionals = 1}) + question(wireNameOfSize(name_size), 1) + opt(512));
        askForNsid(e.query, nsid);
        ResponseBuilder response(e.query, e.limit);
        if (ede) response.setEde(EdeCode::kStaleAnswer);
        response.addAnswer(bytes(kAnswer), 1);
        const bool added = response.addAdditional(bytes(big), 1);
        const ReadMessage read = e.read(response.finish(Rcode::kNoError, 0));
        EXPECT_FALSE(read.has(kFlagTc));
        EXPECT_EQ(read.answers.size(), 1u);
        ASSERT_NE(read.opt(), nullptr);
        const size_t fixed = 12 + name_size + 4 + 11 + (ede ? 6 : 0) + kAnswer.size();
        const bool fits = fixed + 4 + nsid_size <= 512;
        EXPECT_EQ(added, fixed + (fits ? 4 + nsid_size : 0) + big.size() <= 512) << "after NSID";
        EXPECT_EQ(read.opt()->rdata, (ede ? option(15, be16(3)) : "") + (fits ? option(3, nsid) : ""))
            << name_size << ' ' << nsid_size;
      }
    }
  }
}

// The cookie comes before all else, and takes the room of what does not have to be there.
TEST(ResponseBuilder, TheCookieAlwaysFits) {
  const std::string cookie = option(10, kClientCookie + kServerCookie);
  for (size_t name_size = 3; name_size <= 255; name_size += 4) {
    for (const size_t nsid_size : {0, 100, 200, 255, 512}) {
      for (const size_t text_size : {0, 50, 400}) {
        for (const size_t answer_size : {4, 150, 300}) {
          const std::string nsid(nsid_size, 'n');
          const std::string answer = record(kPointer, 16, 1, 5, std::string(answer_size, 't'));
          Exchange e(header(kId, 0, {.additionals = 1}) + question(wireNameOfSize(name_size), 1) + opt(512));
          askForCookie(e.query);
          if (nsid_size > 0) askForNsid(e.query, nsid);
          ResponseBuilder response(e.query, e.limit);
          const std::string text(text_size, 'e');
          response.setEde(EdeCode::kStaleAnswer, text);
          response.addAnswer(bytes(answer), 1);
          const ReadMessage read = e.read(response.finish(Rcode::kNoError, 0));
          ASSERT_NE(read.opt(), nullptr);
          EXPECT_TRUE(read.opt()->rdata.starts_with(cookie));
          const size_t fixed = 12 + name_size + 4 + 11 + cookie.size();
          if (fixed + 6 + answer.size() <= 512 && text_size == 0) {
            EXPECT_EQ(read.answers.size(), 1u);
          }
        }
      }
    }
  }
}

TEST(ResponseBuilder, TheIdleTimeout) {
  Exchange e(ednsQuery());
  e.query.asked_options |= kAsksKeepalive | kTellsKeepalive;
  e.query.idle_timeout = 0x1234;
  askForCookie(e.query);
  ResponseBuilder response(e.query, e.limit);
  response.addAnswer(bytes(record(kPointer, 16, 1, 5, std::string(600, 't'))), 1);
  const ReadMessage read = e.read(response.finish(Rcode::kNoError, 0));
  EXPECT_TRUE(read.has(kFlagTc));
  EXPECT_EQ(read.opt()->rdata, option(10, kClientCookie + kServerCookie) + option(11, be16(0x1234)));
}

// Over UDP nobody says one (RFC 7828 §3.3.1).
TEST(ResponseBuilder, AnIdleTimeoutThatNobodyKnowsIsNotSaid) {
  Exchange e(ednsQuery());
  e.query.asked_options |= kAsksKeepalive;
  ResponseBuilder response(e.query, e.limit);
  EXPECT_EQ(e.read(response.finish(Rcode::kNoError, 0)).opt()->rdata, "");
}

// RFC 8467 §4.1: multiples of 468 bytes; where the message has no room for that, what there is.
TEST(ResponseBuilder, Padding) {
  for (const size_t data : {0, 1, 400, 430, 440, 450, 1000}) {
    Exchange e(ednsQuery(), kMaxMessageSize);
    e.query.asked_options |= kAsksPadding | kPads;
    ResponseBuilder response(e.query, e.limit);
    response.addAnswer(bytes(record(kPointer, 16, 1, 5, std::string(data, 't'))), 1);
    const size_t size = response.finish(Rcode::kNoError, 0);
    EXPECT_EQ(size % kPaddedBlock, 0u) << data;
    EXPECT_LE(size, data + 2 * kPaddedBlock);
    const std::string rdata = e.read(size).opt()->rdata;
    EXPECT_EQ(rdata, option(12, std::string(rdata.size() - kOptionHeadSize, '\0')));
  }
  Exchange e(ednsQuery(), 400);
  e.query.asked_options |= kAsksPadding | kPads;
  EXPECT_EQ(ResponseBuilder(e.query, e.limit).finish(Rcode::kNoError, 0), 400u);
}

// RFC 7830 §6: in plain text it hides nothing.
TEST(ResponseBuilder, ThereIsNoPaddingUnlessTheConnectionIsEncrypted) {
  Exchange e(ednsQuery());
  e.query.asked_options |= kAsksPadding;
  EXPECT_EQ(e.read(ResponseBuilder(e.query, e.limit).finish(Rcode::kNoError, 0)).opt()->rdata, "");
}

TEST(ResponseBuilder, ACookieThatNobodyHasJudgedIsNotSentBack) {
  Exchange e(ednsQuery());
  askForCookie(e.query);
  e.query.cookie.in_response = false;
  ResponseBuilder response(e.query, e.limit);
  EXPECT_EQ(e.read(response.finish(Rcode::kNoError, 0)).opt()->rdata, "");
}

TEST(ResponseBuilder, ATruncatedResponseKeepsNsidWhereThereIsRoom) {
  const std::string nsid(100, 'n');
  Exchange e(ednsQuery());
  askForNsid(e.query, nsid);
  ResponseBuilder response(e.query, e.limit);
  response.addAnswer(bytes(record(kPointer, 16, 1, 5, std::string(600, 't'))), 1);
  const ReadMessage read = e.read(response.finish(Rcode::kNoError, 0));
  EXPECT_TRUE(read.has(kFlagTc));
  ASSERT_NE(read.opt(), nullptr);
  EXPECT_EQ(read.opt()->rdata, option(3, nsid));
}

TEST(ResponseBuilderDeathTest, MoreThanTheLimitAborts) {
  Exchange e(header(kId, 0, {.additionals = 1}) + question(wireNameOfSize(255), 1) + opt(512));
  EXPECT_DEATH(ResponseBuilder(e.query, 280).finish(Rcode::kNoError, 0), "fits");  // 271 and OPT
}

TEST(ResponseBuilder, ALargeLimit) {
  Exchange e(query(), 65535);
  ResponseBuilder response(e.query, e.limit);
  std::string answers;
  for (int i = 0; i < 4000; ++i) answers += kAnswer;
  response.addAnswer(bytes(answers), 4000);
  EXPECT_EQ(e.read(response.finish(Rcode::kNoError, 0)).answers.size(), 4000u);
}

// --- writeErrorResponse ---

TEST(ErrorResponse, FormErrWithoutAQuestionIsTheHeader) {
  Exchange e(header(kId, 0x0110, {.questions = 2}) + question(kName, 1) + question(kName, 1));
  EXPECT_EQ(e.bytes(writeErrorResponse(e.query, e.limit)), header(kId, 0x8111, {.questions = 0}));
}

TEST(ErrorResponse, FormErrEchoesTheQuestionItCouldRead) {
  Exchange e(header(kId, 0, {.additionals = 2}) + question(kName, 1) + opt(4096, 0x8000) + opt(4096));
  const ReadMessage message = e.readError();
  EXPECT_EQ(message.rcode(), 1u);
  EXPECT_EQ(message.questions, std::vector{question(kName, 1)});
  ASSERT_EQ(message.additionals.size(), 1u);
  EXPECT_EQ(message.additionals[0].ttl, 0x8000u);
}

TEST(ErrorResponse, BadVersion) {
  Exchange e(ednsQuery(0x00018000));
  const ReadMessage message = e.readError();
  EXPECT_EQ(message.rcode(), 0u);
  ASSERT_NE(message.opt(), nullptr);
  EXPECT_EQ(message.opt()->ttl, 0x01008000u);  // BADVERS, version 0, DO
  EXPECT_TRUE(message.answers.empty());
}

TEST(ErrorResponse, NotImplementedKeepsOpcodeQuestionAndOpt) {
  for (unsigned opcode = 1; opcode < 16; ++opcode) {
    Exchange e(header(kId, opcode << 11 | 0x0400, {.additionals = 1}) + question(kName, 6) + opt(1232));
    const ReadMessage message = e.readError();
    EXPECT_EQ(message.flags, 0x8004u | opcode << 11);
    EXPECT_EQ(message.questions, std::vector{question(kName, 6)});
    EXPECT_NE(message.opt(), nullptr);
  }
}

TEST(ErrorResponse, CookieWithoutQuestion) {
  Exchange e(header(kId, 0, {.questions = 0, .additionals = 1}) + opt(1232, 0, option(10, "12345678")));
  const ReadMessage message = e.readError();
  EXPECT_EQ(message.rcode(), 0u);
  EXPECT_TRUE(message.questions.empty());
  EXPECT_NE(message.opt(), nullptr);
}

TEST(ErrorResponse, ZoneTransferIsRefused) {
  Exchange e(header(kId, 0, {}) + question(kName, 252));
  const ReadMessage message = e.readError();
  EXPECT_EQ(message.rcode(), 5u);
  EXPECT_EQ(message.questions, std::vector{question(kName, 252)});
}

const std::string kKey = wireName("Tsig-Key.example.");
const std::string kAlgorithm = wireName("hmac-sha256.");
const std::string kTime = std::string("\x00\x00\x65\x43\x21\x00\x01\x2c", 8);  // time signed, fudge 300
std::string tsigRdata() { return kAlgorithm + kTime + be16(4) + "MAC!" + be16(0x1234) + be16(0) + be16(0); }

// RFC 8945 §5.2.1: NOTAUTH with BADKEY, unsigned, TSIG as the last record.
TEST(ErrorResponse, TsigOfAnUnknownKey) {
  for (const bool edns : {false, true}) {
    Exchange e(header(kId, 0, {.additionals = edns ? 2u : 1u}) + question(kName, 1) + (edns ? opt(1232) : "") +
               record(kKey, 250, 255, 0, tsigRdata()));
    const ReadMessage message = e.readError();
    EXPECT_EQ(message.rcode(), 9u);
    EXPECT_EQ(message.questions, std::vector{question(kName, 1)});
    ASSERT_EQ(message.additionals.size(), edns ? 2u : 1u);
    EXPECT_EQ(message.opt() != nullptr, edns);
    const ReadRecord& tsig = message.additionals.back();
    EXPECT_EQ(tsig.owner, kKey);
    EXPECT_EQ(tsig.type, 250u);
    EXPECT_EQ(tsig.klass, 255u);
    EXPECT_EQ(tsig.ttl, 0u);
    EXPECT_EQ(tsig.rdata, kAlgorithm + kTime + be16(0) + be16(kId) + be16(17) + be16(0));
  }
}

// RFC 8945 §4.2: class ANY and TTL 0, whatever the query's TSIG has.
TEST(ErrorResponse, ClassAndTtlOfATsigAreNotTheClients) {
  Exchange e(header(kId, 0, {.additionals = 1}) + question(kName, 1) + record(kKey, 250, 1, 0x93000000, tsigRdata()));
  const ReadMessage message = e.readError();
  ASSERT_EQ(message.additionals.size(), 1u);
  const ReadRecord& tsig = message.additionals[0];
  EXPECT_EQ(tsig.type, 250u);
  EXPECT_EQ(tsig.klass, 255u);
  EXPECT_EQ(tsig.ttl, 0u);
}

TEST(ErrorResponse, TsigThatCannotBeRead) {
  const std::string good = tsigRdata();
  for (const std::string& rdata : {std::string(), std::string("\x40", 1), kAlgorithm, kAlgorithm + kTime.substr(1),
                                   std::string("\xc0\x0c", 2) + good.substr(kAlgorithm.size())}) {
    Exchange e(header(kId, 0, {.additionals = 1}) + question(kName, 1) + record(kKey, 250, 255, 0, rdata));
    const ReadMessage message = e.readError();
    EXPECT_EQ(message.rcode(), 1u);
    EXPECT_TRUE(message.additionals.empty());
  }
  Exchange compressed(header(kId, 0, {.additionals = 1}) + question(kName, 1) + record(kPointer, 250, 255, 0, good));
  EXPECT_EQ(compressed.readError().rcode(), 1u);
}

TEST(ErrorResponse, TsigOfTheLongestNames) {
  const std::string longest = wireNameOfSize(255);
  const std::string message = header(kId, 0, {.additionals = 1}) + question(longest, 1) +
                              record(longest, 250, 255, 0, longest + kTime + std::string(8, '\0'));
  Exchange small(message, 512);  // no room for it: left out
  const ReadMessage without = small.readError();
  EXPECT_EQ(without.rcode(), 9u);
  EXPECT_TRUE(without.additionals.empty());
  Exchange large(message, 1232);
  const ReadMessage with = large.readError();
  ASSERT_EQ(with.additionals.size(), 1u);
  EXPECT_EQ(with.additionals[0].owner, longest);
  EXPECT_EQ(with.additionals[0].rdata.size(), 255u + 16);
}

// Up to the last byte of the limit, and not one further.
TEST(ErrorResponse, TsigAtTheLimit) {
  const std::string name = wireNameOfSize(214);
  const std::string message =
      header(kId, 0, {.additionals = 1}) + question(name, 1) + record(name, 250, 255, 0, tsigRdata());
  const size_t whole = 12 + name.size() + 4 + name.size() + 10 + kAlgorithm.size() + 16;
  for (const size_t limit : {whole - 1, whole, whole + 1}) {
    ASSERT_GE(limit, 480u);
    Exchange e(message, limit);
    const size_t size = writeErrorResponse(e.query, limit);
    EXPECT_EQ(size, limit < whole ? 12 + name.size() + 4 : whole);
    EXPECT_EQ(e.read(size).additionals.size(), limit < whole ? 0u : 1u) << limit;
  }
}

}  // namespace
}  // namespace idetcd::dns
