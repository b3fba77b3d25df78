#include "dns/response.h"
#include "resolve/handler.h"

namespace idetcd::resolve {

QueryOutcome Gate::answer(AclVerdict verdict, const dns::Query& query, size_t limit, uint16_t flags) {
  if (verdict == AclVerdict::kAllow) return QueryOutcome::next();
  if (verdict == AclVerdict::kDrop) return QueryOutcome::drop(DropReason::kAcl);
  const bool blocked = verdict == AclVerdict::kBlock;
  dns::ResponseBuilder response(query, limit);
  response.setEde(blocked ? dns::EdeCode::kBlocked : dns::EdeCode::kFiltered);
  return QueryOutcome::answer(response.finish(blocked ? dns::Rcode::kRefused : dns::Rcode::kNoError, flags));
}

}  // namespace idetcd::resolve
