#include "directive/chaos/chaos.h"

#include "dns/name.h"
#include "directive/nsid/chaos_text.h"

namespace idetcd::directive {

resolve::QueryOutcome Chaos::answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  static const dns::Name kVersionBind = dns::Name::parse("version.bind.").value();
  static const dns::Name kVersionServer = dns::Name::parse("version.server.").value();
  static const dns::Name kAuthorsBind = dns::Name::parse("authors.bind.").value();
  if (query.qclass != dns::code(dns::RrClass::kCh)) return resolve::QueryOutcome::next();
  const auto is = [&query](const dns::Name& name) { return std::ranges::equal(query.name(), name.wire()); };
  if (is(kVersionBind) || is(kVersionServer)) {
    return answerWithTexts(query, request.response_limit, flags, std::span(&texts_.version, 1));
  }
  if (is(kAuthorsBind)) return answerWithTexts(query, request.response_limit, flags, texts_.authors);
  return resolve::QueryOutcome::next();
}

}  // namespace idetcd::directive
