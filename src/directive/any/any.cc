#include "directive/any/any.h"

#include <array>
#include <string_view>

#include "dns/record.h"
#include "dns/response.h"

namespace idetcd::directive {

resolve::QueryOutcome answerAny(const dns::Query& query, size_t limit, uint16_t flags) {
  if (query.qtype != dns::code(dns::RrType::kAny)) return resolve::QueryOutcome::next();
  constexpr uint32_t kTtlSeconds = 8482;
  constexpr std::string_view kRdata("\7RFC8482\0", 9);  // HINFO of CPU "RFC8482" and OS "" (RFC 8482 §4.2)
  std::array<uint8_t, dns::kRecordHeadSize + kRdata.size()> record;
  dns::putBytes(
      dns::putRecordHead(record.data(), dns::kQuestionPointer, dns::RrType::kHinfo, kTtlSeconds, kRdata.size()),
      kRdata);
  dns::ResponseBuilder response(query, limit);
  response.addAnswer(record, 1);
  return resolve::QueryOutcome::answer(response.finish(dns::Rcode::kNoError, flags));
}

}  // namespace idetcd::directive
