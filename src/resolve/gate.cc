#include "dns/response.h"
#include "resolve/handler.h"

namespace idetcd::resolve {

Outcome Gate::answer(Verdict verdict, const dns::Query& query, size_t limit, uint16_t flags) {
  if (verdict == Verdict::kAllow) return Outcome::next();
  if (verdict == Verdict::kDrop) return Outcome::drop(DropReason::kAcl);
  const bool blocked = verdict == Verdict::kBlock;
  dns::ResponseBuilder response(query, limit);
  response.setEde(blocked ? dns::EdeCode::kBlocked : dns::EdeCode::kFiltered);
  return Outcome::answer(response.finish(blocked ? dns::Rcode::kRefused : dns::Rcode::kNoError, flags));
}

}  // namespace idetcd::resolve
