#include "directive/etcd/service_handler.h"

#include <cstdlib>

#include "dns/response.h"
#include "resolve/router.h"
#include "zones/zone_response.h"

namespace idetcd::directive {

using resolve::QueryOutcome;
using skydns::ForeignAnswer;
using skydns::Lookup;

namespace {

// Our questions have other IDs than the client's own, which may be on their way as well: what has the same ID counts as
// sent twice (resolver/waiting_clients).
constexpr uint16_t kIdChange = 0x5364;

bool isWithinAny(std::span<const uint8_t> name, const std::vector<dns::Name>& zones) {
  return std::ranges::any_of(zones, [&](const dns::Name& zone) { return dns::isNameWithin(name, zone); });
}

// Whether `zone` is below `name`.
bool isBelow(const dns::Name& zone, std::span<const uint8_t> name) {
  std::span<const uint8_t> above = zone.wire();
  while (above.size() > name.size()) above = dns::parentOf(above);
  return zone.size() > name.size() && std::ranges::equal(above, name);
}

size_t writeFailure(const dns::Query& query, size_t limit, uint16_t flags, std::optional<dns::EdeCode> ede = {}) {
  dns::ResponseBuilder response(query, limit);
  if (ede) response.setEde(*ede);
  return response.finish(dns::Rcode::kServFail, flags);
}

size_t writeTruncated(const dns::Query& query, size_t limit, uint16_t flags) {
  dns::ResponseBuilder response(query, limit);
  response.truncate();
  return response.finish(dns::Rcode::kNoError, flags);
}

}  // namespace

// Gets what is answered late to a question of ours.
class ServiceHandler::Sink final : public resolve::ReplySink {
 public:
  Sink(ServiceHandler& handler, Reply reply, uint16_t flags, dns::Name name, size_t question_end)
      : handler_(handler), reply_(std::move(reply)), flags_(flags), name_(name), question_end_(question_end) {}
  void send(std::span<const uint8_t> message) override {
    handler_.onForeign(std::move(reply_), flags_, {name_, message, question_end_});
  }
  bool pushBack() override { return reply_->pushBack(); }

 private:
  ServiceHandler& handler_;
  Reply reply_;
  const uint16_t flags_;
  const dns::Name name_;
  const size_t question_end_;
};

class ServiceHandler::Deferrer final : public resolve::ReplyDeferrer {
 public:
  Deferrer(ServiceHandler& handler, const dns::Query& query, const resolve::Request& request, uint16_t flags,
           const dns::Name& name)
      : handler_(handler), query_(query), request_(request), flags_(flags), name_(name) {}
  std::unique_ptr<resolve::ReplySink> keepClient() override {
    return std::make_unique<Sink>(handler_, std::make_unique<resolve::DeferredReply>(query_, request_), flags_, name_,
                                  question_end);
  }

  size_t question_end = 0;  // of the question that is asked

 private:
  ServiceHandler& handler_;
  const dns::Query& query_;
  const resolve::Request& request_;
  const uint16_t flags_;
  const dns::Name& name_;
};

ServiceHandler::ServiceHandler(const resolve::Chain& chain, size_t index, Options options)
    : chain_(chain), index_(index), options_(std::move(options)), generation_(options_.services->generation()) {
  table_ = options_.services->table();
}

// The generation is read before the table, so a table that is replaced in between is only fetched once more.
const skydns::ServiceTable* ServiceHandler::newestTable() {
  const uint64_t generation = options_.services->generation();
  if (generation != generation_) [[unlikely]] {
    generation_ = generation;
    table_ = options_.services->table();
  }
  return table_.get();
}

// The longest. Null: none.
const dns::Name* ServiceHandler::zoneOf(std::span<const uint8_t> name) const {
  const dns::Name* longest = nullptr;
  for (const dns::Name& zone : options_.zones) {
    if (dns::isNameWithin(name, zone) && (longest == nullptr || zone.size() > longest->size())) longest = &zone;
  }
  return longest;
}

QueryOutcome ServiceHandler::answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const dns::Name* const zone = zoneOf(query.name());
  if (zone == nullptr) {
    const bool is_above = std::ranges::any_of(
        options_.zones, [&](const dns::Name& other) { return query.qname_size > 1 && isBelow(other, query.name()); });
    return is_above ? QueryOutcome::nextOfAbove() : QueryOutcome::next();
  }
  const skydns::ServiceTable* const table = newestTable();
  if (table == nullptr)
    return QueryOutcome::answer(writeFailure(query, request.response_limit, flags, dns::EdeCode::kNotReady));
  const bool follows = (query.flags & dns::kFlagRd) != 0 && !request.own_only && request.inner_depth == 0;
  switch (lookup_.run(*table, *zone, query, request.response_limit,
                      follows ? Lookup::Aliases::kFollow : Lookup::Aliases::kAlone)) {
    case Lookup::Outcome::kParentSide:
      return QueryOutcome::nextOfExisting();
    case Lookup::Outcome::kForeign:
      return askForeign(query, request, flags);
    case Lookup::Outcome::kNoName:
      if (isWithinAny(query.name(), options_.fallthrough)) return QueryOutcome::next();
      break;
    case Lookup::Outcome::kFound:
      break;
  }
  return QueryOutcome::answer(write(query, request.response_limit, flags, request.now));
}

QueryOutcome ServiceHandler::answerNoData(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const dns::Name* const zone = zoneOf(query.name());
  const skydns::ServiceTable* const table = newestTable();
  if (zone == nullptr || table == nullptr) return QueryOutcome::next();
  return QueryOutcome::answer(Lookup::writeNoData(*table, *zone, query, request.response_limit, flags));
}

size_t ServiceHandler::write(const dns::Query& query, size_t limit, uint16_t flags, BootClock::time_point now) const {
  std::optional<dns::EdeCode> ede;
  if (now > options_.services->freshUntil()) ede = dns::EdeCode::kStaleAnswer;
  const size_t size = lookup_.write(query, limit, flags, ede);
  if (!options_.rotates && options_.preferred.empty()) return size;
  dns::AddressOrder order{.preferred = options_.preferred};
  if (options_.rotates) order.rotation = dns::load16(query.message);  // the ID is random enough
  zones::orderAddresses(query, size, order);
  return size;
}

// --- aliases that lead out of the zone ---

QueryOutcome ServiceHandler::askForeign(const dns::Query& query, const resolve::Request& request, uint16_t flags) {
  const dns::Name name = lookup_.foreignName();
  Deferrer deferrer(*this, query, request, flags, name);
  const QueryOutcome outcome = ask(query, name, request, deferrer, flags);
  if (outcome.kind != QueryOutcome::Kind::kAnswer) return outcome;
  const ForeignAnswer foreign{name, {question_room_.data(), outcome.size}, deferrer.question_end};
  return QueryOutcome::answer(conclude(query, request.response_limit, flags, foreign));
}

// As the client would have asked it. Where it is answered at once: in question_room_.
QueryOutcome ServiceHandler::ask(const dns::Query& client, const dns::Name& name, const resolve::Request& request,
                                 Deferrer& deferrer, uint16_t flags) {
  question_room_.resize(dns::kMaxMessageSize + dns::kReadSlack);
  uint8_t* const message = question_room_.data();
  const size_t size = dns::writeQuestion(message, client.flags & (dns::kFlagRd | dns::kFlagCd), name.wire(),
                                         client.qtype, client.qclass);
  dns::store16(message, dns::load16(client.message) ^ kIdChange);
  dns::Query query;
  if (dns::parseQuery(message, size, options_.hash_seed, query) != dns::ParseOutcome::kQuery) std::abort();
  deferrer.question_end = query.question_end;
  resolve::Request inner = request;
  inner.deferrer = &deferrer;
  inner.is_inner = true;
  inner.response_limit = dns::kMaxMessageSize;
  ++inner.inner_depth;
  if (request.router != nullptr) {
    const QueryOutcome outcome = request.router->answerInner(chain_, index_ + 1, query, inner);
    if (!outcome.isNext()) return outcome;
  }
  return chain_.runFrom(index_ + 1, query, inner, flags);
}

// The response over the query, which the table may answer otherwise by now.
size_t ServiceHandler::conclude(const dns::Query& query, size_t limit, uint16_t flags, const ForeignAnswer& foreign) {
  const dns::HeaderView header(foreign.message.data());
  const dns::Rcode rcode = header.rcode();
  if (header.isTruncated()) return writeTruncated(query, limit, flags);
  // REFUSED: nobody here resolves that name.
  if (rcode != dns::Rcode::kNoError && rcode != dns::Rcode::kNxDomain && rcode != dns::Rcode::kRefused)
    return writeFailure(query, limit, flags);
  const auto outcome =
      lookup_.run(*newestTable(), *zoneOf(query.name()), query, limit, Lookup::Aliases::kFollow, &foreign);
  // The alias leads elsewhere by now: that name was not asked for, so nothing can be denied.
  if (outcome == Lookup::Outcome::kForeign) return writeFailure(query, limit, flags);
  return write(query, limit, flags, BootClock::now());
}

void ServiceHandler::onForeign(Reply reply, uint16_t flags, const ForeignAnswer& foreign) {
  reply->makeRoom(reply_room_, options_.nsid.get());
  const size_t size = conclude(reply->query(), reply->responseLimit(), flags, foreign);
  reply->finish(size, options_.limiter.get(), options_.log.get(), options_.directive);
}

}  // namespace idetcd::directive
