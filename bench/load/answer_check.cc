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

bool hasAddress(std::span<const uint8_t> answer, size_t pos, const Expectation& expectation) {
  constexpr size_t kFixed = 10;  // type, class, TTL, RDLENGTH
  pos = skipName(answer, pos);
  const auto v4 = addressV4(expectation.number);
  const auto v6 = addressV6(expectation.number);
  const bool is_v4 = expectation.type == dns::RrType::kA;
  const uint8_t* address = is_v4 ? v4.data() : v6.data();
  const size_t size = is_v4 ? v4.size() : v6.size();
  if (pos > answer.size() || answer.size() - pos < kFixed + size) return false;
  const uint8_t* record = answer.data() + pos;
  return dns::load16(record) == dns::code(expectation.type) &&
         dns::load16(record + 2) == dns::code(dns::RrClass::kIn) && dns::load16(record + 8) == size &&
         std::memcmp(record + kFixed, address, size) == 0;
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
  return !expectation.exists || hasAddress(answer, question_end, expectation);
}

bool isEcho(std::span<const uint8_t> query, std::span<const uint8_t> answer) {
  return answer.size() >= query.size() && (answer[2] & 0x80) != 0 &&
         std::memcmp(query.data() + 4, answer.data() + 4, query.size() - 4) == 0;
}

}  // namespace idetcd::bench
