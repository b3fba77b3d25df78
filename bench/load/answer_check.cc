#include "load/answer_check.h"

#include <cstring>

#include "common/names.h"
#include "dns/wire.h"

namespace idetcd::bench {

namespace {

// Offset behind the query's question: its name is uncompressed and well-formed.
size_t questionEnd(std::span<const uint8_t> query) {
  size_t pos = dns::kHeaderSize;
  while (query[pos] != 0) pos += query[pos] + 1u;
  return pos + 5;
}

// Offset behind a name that may end in a compression pointer; answer.size() if it is cut off.
size_t skipName(std::span<const uint8_t> answer, size_t pos) {
  while (pos < answer.size()) {
    if (answer[pos] >= 0xc0) return pos + 2;
    if (answer[pos] == 0) return pos + 1;
    pos += answer[pos] + 1u;
  }
  return answer.size();
}

// Whether a record begins there that has this type, and RDATA that ends with `tail` behind `before` other bytes.
bool hasRecord(std::span<const uint8_t> answer, size_t pos, dns::RrType type, size_t before, std::span<const uint8_t> tail) {
  constexpr size_t kFixed = 10;  // type, class, TTL, RDLENGTH
  pos = skipName(answer, pos);
  const size_t size = before + tail.size();
  if (pos > answer.size() || answer.size() - pos < kFixed + size) return false;
  const uint8_t* record = answer.data() + pos;
  return dns::load16(record) == dns::code(type) && dns::load16(record + 2) == dns::code(dns::RrClass::kIn) &&
         dns::load16(record + 8) == size && std::memcmp(record + kFixed + before, tail.data(), tail.size()) == 0;
}

bool hasAddress(std::span<const uint8_t> answer, size_t pos, const Expectation& expectation) {
  const auto v4 = addressV4(expectation.number);
  const auto v6 = addressV6(expectation.number);
  if (expectation.type == dns::RrType::kA) return hasRecord(answer, pos, expectation.type, 0, v4);
  return hasRecord(answer, pos, expectation.type, 0, v6);
}

}  // namespace

bool isRightAnswer(std::span<const uint8_t> query, const Expectation& expectation, std::span<const uint8_t> answer) {
  const size_t question_end = questionEnd(query);
  if (answer.size() < question_end) return false;
  const uint16_t flags = dns::load16(answer.data() + 2);
  const auto rcode = expectation.exists ? dns::Rcode::kNoError : dns::Rcode::kNxDomain;
  if ((flags & dns::kFlagQr) == 0 || (flags & dns::kRcodeMask) != dns::code(rcode)) return false;
  if (dns::load16(answer.data() + 4) != 1 || dns::load16(answer.data() + 6) != (expectation.exists ? 1 : 0))
    return false;
  if (std::memcmp(query.data() + dns::kHeaderSize, answer.data() + dns::kHeaderSize, question_end - dns::kHeaderSize) !=
      0) {
    return false;
  }
  if (!expectation.exists) return true;
  if (expectation.type != dns::RrType::kSrv) return hasAddress(answer, question_end, expectation);
  constexpr size_t kBeforeTarget = 6;  // priority, weight, port
  const auto name = query.subspan(dns::kHeaderSize, question_end - dns::kHeaderSize - 4);
  return hasRecord(answer, question_end, expectation.type, kBeforeTarget, name);
}

bool isEcho(std::span<const uint8_t> query, std::span<const uint8_t> answer) {
  return answer.size() >= query.size() && (answer[2] & 0x80) != 0 &&
         std::memcmp(query.data() + 4, answer.data() + 4, query.size() - 4) == 0;
}

}  // namespace idetcd::bench
