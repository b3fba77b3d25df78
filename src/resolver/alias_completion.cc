#include "resolver/alias_completion.h"

#include "dns/response.h"
#include "resolve/router.h"

namespace idetcd::resolver {

using resolve::QueryOutcome;

AliasCompletion::AliasCompletion(const resolve::Chain& chain, net::EventLoop& loop, records::EpochDomain& epochs,
                                 Options options)
    : chain_(chain),
      options_(std::move(options)),
      reader_(epochs),
      follower_(loop, {.resolve = [](const dns::Query&, const QueryOrigin&,
                                     const Forwarder::Callback&) { return std::optional<Forwarder::Wait>(); },
                       .answer_here = [this](const dns::Query& query,
                                             const resolve::Request& request) { return answerHere(query, request); },
                       .hash_seed = options_.hash_seed,
                       .time = Forwarder::kTotalTime}) {}

QueryOutcome AliasCompletion::answerHere(const dns::Query& query, const resolve::Request& request) {
  if (request.router == nullptr) return QueryOutcome::next();
  const records::ReadSection section(reader_);
  return request.router->answerInner(chain_, chain_.size(), query, request);
}

QueryOutcome AliasCompletion::complete(const dns::Query& query, const resolve::Request& request, size_t size,
                                       uint32_t wildcard) {
  const QueryOutcome as_it_is = QueryOutcome::answer(size);
  if ((query.flags & dns::kFlagRd) == 0 || request.inner_depth > 0 || request.deferrer == nullptr) return as_it_is;
  auto own = std::make_shared<StoredResponse>();
  const uint16_t id = dns::load16(query.message);
  const bool is_read =
      readUpstreamResponse({query.message, size}, id, query, *own) == UpstreamVerdict::kAccepted;
  if (!is_read || !own->unfinished) return as_it_is;

  const auto reply = std::make_shared<resolve::DeferredReply>(query, request);
  ++waiting_;
  const ForwardResult result{.response = own, .rcode = own->packed->rcode, .ede = std::nullopt, .reason = {}};
  const auto done = [this, reply, own, wildcard, answer = std::vector<uint8_t>(query.message, query.message + size)](const ForwardResult& whole) {
    finish(*reply, whole, whole.response == own ? std::span(answer) : std::span<const uint8_t>(), wildcard);
  };
  follower_.follow(query, QueryOrigin::of(query, request), result, {.asked = reply->kept(), .done = done});
  return QueryOutcome::pending();
}

// `own_answer`: the handler's, if there is no more; else empty.
void AliasCompletion::finish(resolve::DeferredReply& reply, const ForwardResult& result,
                             std::span<const uint8_t> own_answer, uint32_t wildcard) {
  --waiting_;
  const dns::Query& query = reply.query();
  const resolve::Chain::Parts& parts = chain_.parts;
  if (parts.errors && !result.response) parts.errors->onFailed(query, result.rcode, result.reason);
  if (reply.pushBack()) return;
  reply.makeRoom(room_, parts.nsid.get());
  const size_t size = own_answer.empty() ? write(query, reply.responseLimit(), result) : own_answer.size();
  std::ranges::copy(own_answer, query.message);
  reply.finish(size, parts.limiter.get(), parts.log.get(), options_.directive, wildcard);
}

// Over the query.
size_t AliasCompletion::write(const dns::Query& query, size_t limit, const ForwardResult& result) {
  const uint16_t flags = chain_.parts.recursion_available ? dns::kFlagRa : 0;
  if (!result.response) {
    dns::ResponseBuilder response(query, limit);
    if (result.ede) response.setEde(*result.ede);
    return response.finish(result.rcode, flags);
  }
  dns::WriteOptions options;
  if (options_.rotates) options.addresses = {.rotation = ++rotation_, .preferred = options_.preferred};
  const size_t size = dns::writePackedResponse(*result.response->packed, query, limit, options);
  constexpr uint16_t kOurs = dns::kFlagAa | dns::kFlagRa;
  uint8_t* const header_flags = query.message + 2;
  dns::store16(header_flags, static_cast<uint16_t>((dns::load16(header_flags) & ~kOurs) | dns::kFlagAa | flags));
  return size;
}

}  // namespace idetcd::resolver
