#include "resolve/handler.h"

#include "dns/message_reader.h"
#include "dns/response.h"

namespace idetcd::resolve {

QueryOutcome Gate::answer(AclVerdict verdict, const dns::Query& query, size_t limit, uint16_t flags) {
  if (verdict == AclVerdict::kAllow) return QueryOutcome::next();
  if (verdict == AclVerdict::kDrop) return QueryOutcome::drop(DropReason::kAcl);
  const bool blocked = verdict == AclVerdict::kBlock;
  dns::ResponseBuilder response(query, limit);
  response.setEde(blocked ? dns::EdeCode::kBlocked : dns::EdeCode::kFiltered);
  return QueryOutcome::answer(response.finish(blocked ? dns::Rcode::kRefused : dns::Rcode::kNoError, flags));
}

size_t RateLimiter::limit(const dns::Query& query, const Request& request, size_t size, uint32_t wildcard) {
  const RateVerdict verdict = judge(query, request, {query.message, size}, wildcard);
  if (verdict == RateVerdict::kSend) return size;
  if (verdict == RateVerdict::kDrop) return 0;
  // NSID stays if the response is no larger than the query for it.
  const size_t room = query.question_end + dns::kOptSize + dns::kCookieOptionSize;
  const dns::HeaderView header(query.message);
  const auto flags = static_cast<uint16_t>(header.flags() & (dns::kFlagAa | dns::kFlagRa));
  dns::ResponseBuilder response(query, std::min(request.response_limit, std::max<size_t>(query.size, room)));
  response.truncate();
  return response.finish(header.rcode(), flags);
}

}  // namespace idetcd::resolve
