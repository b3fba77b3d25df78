// A datagram or a TCP message from anywhere: read, and answered as an error or with records.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "dns/query.h"
#include "dns/response.h"
#include "fuzz/check.h"
#include "unit/dns/message.h"

namespace {

using namespace idetcd;
using dns::test::MessageReader;
using dns::test::ReadMessage;

constexpr size_t kLimits[] = {512, 513, 541, 600, 1232, 4096};

// The message in a block with room for what is read behind it, or for a response of `limit` bytes, and no more.
struct Buffer {
  Buffer(const uint8_t* data, size_t size, size_t room) : bytes(std::make_unique_for_overwrite<uint8_t[]>(room)) {
    std::memcpy(bytes.get(), data, size);
  }
  std::unique_ptr<uint8_t[]> bytes;
};

void checkQuery(const dns::Query& query, const std::string& message) {
  FUZZ_CHECK(query.size == message.size());
  FUZZ_CHECK(query.udp_payload >= 512);
  FUZZ_CHECK(query.question_end >= dns::kHeaderSize && query.question_end <= message.size());
  FUZZ_CHECK((query.flags & dns::kFlagQr) == 0);
  if (query.question_end == dns::kHeaderSize) {
    FUZZ_CHECK(query.qname_size == 0);
    return;
  }
  FUZZ_CHECK(query.qname_size >= 1 && query.qname_size <= dns::kMaxNameLength);
  FUZZ_CHECK(query.question_end == dns::kHeaderSize + query.qname_size + 4);
  for (size_t i = 0; i < query.qname_size; ++i) {
    FUZZ_CHECK(query.qname[i] == dns::toLower(static_cast<uint8_t>(message[dns::kHeaderSize + i])));
  }
  FUZZ_CHECK(dns::Name::fromWire(query.name()).toString() == dns::nameToString(query.qname));
}

// Well-formed, no larger than allowed, and an answer to this question.
ReadMessage checkResponse(const dns::Query& query, size_t size, size_t limit, const std::string& message) {
  FUZZ_CHECK(size >= dns::kHeaderSize && size <= limit);
  const auto response = MessageReader::read({query.message, size});
  FUZZ_CHECK(response.has_value());
  FUZZ_CHECK(message.compare(0, 2, reinterpret_cast<const char*>(query.message), 2) == 0);
  FUZZ_CHECK(response->has(dns::kFlagQr));
  // The client's opcode, RD and CD; no Z, no AD.
  constexpr unsigned kEchoed = dns::kOpcodeMask | dns::kFlagRd | dns::kFlagCd;
  FUZZ_CHECK((response->flags & kEchoed) == (query.flags & kEchoed));
  FUZZ_CHECK((response->flags & 0x0060) == 0);
  if (query.question_end > dns::kHeaderSize) {
    FUZZ_CHECK(response->questions.size() == 1);
    FUZZ_CHECK(message.compare(dns::kHeaderSize, query.question_end - dns::kHeaderSize, response->questions[0]) == 0);
  } else {
    FUZZ_CHECK(response->questions.empty());
  }
  FUZZ_CHECK((response->opt() != nullptr) == query.has_edns);
  if (query.has_edns) FUZZ_CHECK((response->opt()->ttl & 0x00ffffff) == (query.dnssec_ok ? 0x8000u : 0));
  return *response;
}

void answerError(const std::string& message, dns::Query& query, size_t limit) {
  const size_t size = dns::writeErrorResponse(query, limit);
  const ReadMessage response = checkResponse(query, size, limit, message);
  const unsigned rcode = response.rcode() | (query.has_edns ? response.opt()->ttl >> 24 << 4 : 0);
  // NOTAUTH becomes FORMERR where the TSIG cannot be echoed.
  FUZZ_CHECK(rcode == dns::code(query.error) || (query.error == dns::Rcode::kNotAuth && rcode == 1));
  FUZZ_CHECK(response.answers.empty() && response.authorities.empty());
}

void answerRecords(const std::string& message, dns::Query& query, size_t limit) {
  // As many records as the hash says, so that some do not fit.
  const std::string record = dns::test::record("\xc0\x0c", 16, 1, 5, std::string(query.hash % 97, 'r'));
  std::string records;
  const auto count = static_cast<uint16_t>(query.hash >> 8 & 0xf);
  for (uint16_t i = 0; i < count; ++i) records += record;
  const std::string nsid(query.hash >> 20 & 0x1ff, 'n');
  if (query.has_edns && (query.hash & 0x20000) != 0) {
    query.asked_options |= dns::kAsksNsid;
    query.nsid = &nsid;
  }
  if (query.asksFor(dns::kAsksCookie)) query.cookie.in_response = (query.hash & 0x40000) != 0;
  dns::ResponseBuilder builder(query, limit);
  if ((query.hash & 0x10000) != 0) builder.setEde(dns::EdeCode::kStaleAnswer);
  builder.addAnswer(dns::test::bytes(records), count);
  builder.addAuthority(dns::test::bytes(record), 1);
  builder.addAdditional(dns::test::bytes(records), count);
  const size_t size = builder.finish(dns::Rcode::kNoError, dns::kFlagAa);
  const ReadMessage response = checkResponse(query, size, limit, message);
  const bool truncated = response.has(dns::kFlagTc);
  FUZZ_CHECK(response.answers.size() == (truncated ? 0 : count));
  FUZZ_CHECK(response.authorities.size() == (truncated ? 0 : 1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > dns::kMaxMessageSize) return 0;
  const std::string message(reinterpret_cast<const char*>(data), size);
  for (const size_t limit : kLimits) {
    Buffer buffer(data, size, std::max(limit, size + dns::kReadSlack));
    dns::Query query;
    const dns::ParseOutcome outcome = dns::parseQuery(buffer.bytes.get(), size, 7, query);
    FUZZ_CHECK(std::memcmp(buffer.bytes.get(), data, size) == 0);
    const bool ours = size >= dns::kHeaderSize && (data[2] & 0x80) == 0;
    FUZZ_CHECK((outcome == dns::ParseOutcome::kDrop) == !ours);
    if (outcome == dns::ParseOutcome::kDrop) return 0;
    checkQuery(query, message);
    // A transfer that nobody serves is refused.
    if (outcome != dns::ParseOutcome::kQuery) {
      answerError(message, query, limit);
    } else {
      FUZZ_CHECK(query.error == dns::Rcode::kNoError && query.question_end > dns::kHeaderSize);
      answerRecords(message, query, limit);
    }
  }
  // Once more with nothing behind the message but the slack.
  Buffer tight(data, size, size + dns::kReadSlack);
  dns::Query query;
  dns::parseQuery(tight.bytes.get(), size, 7, query);
  return 0;
}
