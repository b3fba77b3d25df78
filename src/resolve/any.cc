#include "resolve/any.h"

#include <array>

#include "dns/response.h"

namespace idetcd::resolve {

Outcome answerAny(const dns::Query& query, size_t limit, uint16_t flags) {
  if (query.qtype != dns::code(dns::RrType::kAny)) return Outcome::next();
  // owner: the question's name | HINFO IN | TTL 8482 | 9 octets: CPU "RFC8482", OS ""
  static constexpr std::array<uint8_t, 21> kRecord{0xc0, 0x0c, 0,   13,  0,   1,   0,   0,   0x21, 0x22, 0,
                                                   9,    7,    'R', 'F', 'C', '8', '4', '8', '2',  0};
  dns::ResponseBuilder response(query, limit);
  response.addAnswer(kRecord, 1);
  return Outcome::answer(response.finish(dns::Rcode::kNoError, flags));
}

}  // namespace idetcd::resolve
