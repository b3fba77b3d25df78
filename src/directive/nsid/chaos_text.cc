#include "directive/nsid/chaos_text.h"

#include "dns/record.h"
#include "dns/response.h"

namespace idetcd::directive {

resolve::QueryOutcome answerWithTexts(const dns::Query& query, size_t limit, uint16_t flags,
                                 std::span<const std::string> texts) {
  dns::ResponseBuilder response(query, limit);
  const bool asked = query.qtype == dns::code(dns::RrType::kTxt) || query.qtype == dns::code(dns::RrType::kAny);
  if (!asked) texts = {};
  for (const std::string& text : texts) {
    std::array<uint8_t, dns::kRecordHeadSize + 1 + kMaxChaosText> record;
    uint8_t* p = dns::putRecordHead(record.data(), dns::kQuestionPointer, dns::RrType::kTxt, 0, text.size() + 1,
                                    dns::RrClass::kCh);
    *p++ = static_cast<uint8_t>(text.size());
    response.addAnswer({record.data(), dns::putBytes(p, text)}, 1);
  }
  return resolve::QueryOutcome::answer(response.finish(dns::Rcode::kNoError, static_cast<uint16_t>(flags | dns::kFlagAa)));
}

}  // namespace idetcd::directive
