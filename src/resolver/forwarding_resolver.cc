#include "resolver/forwarding_resolver.h"

#include <fmt/chrono.h>

#include "dns/response.h"
#include "net/udp_query_socket.h"
#include "resolver/forward_message.h"
#include "resolver/special_names.h"

namespace idetcd::resolver {

namespace {

// Whether nothing has been learnt about the name, not even that it does not exist.
bool isFailure(const ForwardResult& result) {
  return !result.response || result.response->kind == ResponseKind::kFailure ||
         (result.rcode != dns::Rcode::kNoError && result.rcode != dns::Rcode::kNxDomain);
}

}  // namespace

// Of a client that hears what is old, or that there is no answer, if the upstream takes too long. Lives as long as its
// question is on its way.
struct ForwardingResolver::Timers {
  Timers(ForwardingResolver& waiting_resolver, Pending waiting)
      : resolver(waiting_resolver),
        pending(std::move(waiting)),
        stale(this,
              [](void* self) {
                auto& timers = *static_cast<Timers*>(self);
                timers.resolver.onClientResponseTimer(*timers.pending);
              }),
        cancel(this, [](void* self) {
          auto& timers = *static_cast<Timers*>(self);
          timers.resolver.cancel(*timers.pending);
        }) {}

  ForwardingResolver& resolver;
  Pending pending;
  net::Deadline stale;
  net::Deadline cancel;
};

// A question that no client waits for, charged to the client that caused it.
struct ForwardingResolver::Refresh {
  Refresh(const dns::Query& client_query, const resolve::Request& request)
      : query(client_query), origin(QueryOrigin::of(client_query, request)), asked(request) {
    message.assign(query);
    query.message = message.data();  // the other buffer is the client's
    origin.transport = resolve::Transport::kUdp;
    origin.background = true;
  }

  ForwardMessage message;
  dns::Query query;
  QueryOrigin origin;
  resolve::KeptRequest asked;
};

ForwardingResolver::ForwardingResolver(net::EventLoop& loop, Options options, std::shared_ptr<Cache> cache,
                                       std::vector<std::unique_ptr<Forwarder>> forwarders)
    : options_(std::move(options)),
      client_response_timers_(loop, std::min(kMinClientResponseTime, options_.verify_time), options_.verify_time),
      cancel_timers_(loop, kMinCancelTime, options_.cancel_time),
      place_(options_.chain != nullptr ? options_.chain->size() : 0),
      fast_path_{.answers_only = options_.minimal, .single_answer = options_.loadbalance, .no_others = false},
      cache_(std::move(cache)),
      aliases_(loop, {.resolve = [this](const dns::Query& query, const QueryOrigin& origin,
                                        Forwarder::Callback done) -> std::optional<Forwarder::Wait> {
                        const size_t forwarder = findForwarder(query, 0);
                        if (forwarder == forwarders_.size()) return std::nullopt;
                        return forwarders_[forwarder]->resolve(query, origin, std::move(done));
                      },
                      .answer_here = [this](const dns::Query& query,
                                            const resolve::Request& request) { return answerHere(query, request); },
                      .hash_seed = options_.hash_seed}),
      forwarders_(std::move(forwarders)) {
  if (options_.chain != nullptr) reader_.emplace(*options_.epochs);
}

// Of a name that a client has not asked for.
resolve::QueryOutcome ForwardingResolver::answerHere(const dns::Query& query, const resolve::Request& request) {
  if (!reader_ || request.router == nullptr) return resolve::QueryOutcome::next();
  const records::ReadSection section(*reader_);
  const resolve::QueryOutcome outcome = request.router->answerInner(*options_.chain, place_, query, request);
  if (!outcome.isNext() || findForwarder(query, 0) < forwarders_.size()) return outcome;
  const resolve::QueryOutcome special = answerSpecialName(query, request.response_limit);
  return special.isNext() ? outcome : special;
}

resolve::QueryOutcome ForwardingResolver::answer(const dns::Query& query, const resolve::Request& request, uint16_t) {
  if (request.own_only) [[unlikely]]
    return resolve::QueryOutcome::next();
  const bool wants_recursion = (query.flags & dns::kFlagRd) != 0;
  if (wants_recursion) [[likely]] {
    if (const resolve::QueryOutcome outcome = answerAtHand(query, request); !outcome.isNext()) return outcome;
  }
  const size_t forwarder = findForwarder(query, 0);
  if (forwarder == forwarders_.size()) return answerSpecialName(query, request.response_limit);
  if (wants_recursion) return answerOther(query, request, forwarder);
  if (request.name_exists) return resolve::QueryOutcome::next();
  dns::ResponseBuilder response(query, request.response_limit);
  response.setEde(dns::EdeCode::kNotAuthoritative, "no recursion desired");  // RFC 8914 §4.21
  return resolve::QueryOutcome::answer(response.finish(dns::Rcode::kRefused, dns::kFlagRa));
}

// `forwarder` serves the name.
resolve::QueryOutcome ForwardingResolver::answerOther(const dns::Query& query, const resolve::Request& request,
                                                 size_t forwarder) {
  if (isCached(query)) {
    const resolve::QueryOutcome outcome = answerFromCache(query, request);
    if (!outcome.isNext()) return outcome;
  }
  auto pending =
      std::allocate_shared<resolve::DeferredReply>(PoolAllocator<resolve::DeferredReply>(pending_), query, request);
  std::shared_ptr<Timers> timers;
  const bool may_cancel = options_.cancel_time.count() > 0;
  if (options_.verify_stale || may_cancel) timers = std::make_shared<Timers>(*this, pending);
  if (options_.verify_stale) client_response_timers_.arm(timers->stale, clientResponseTime(forwarder, request.now));
  // From when the client asked: `dns64` may have asked another question for it before.
  if (may_cancel) cancel_timers_.arm(timers->cancel, options_.cancel_time - (BootClock::now() - request.now));
  forward(pending, forwarder, timers);
  return resolve::QueryOutcome::pending();
}

bool ForwardingResolver::isCached(const dns::Query& query) const {
  return cache_ &&
         std::any_of(options_.cache_zones.begin(), options_.cache_zones.end(), [&query](const dns::Name& zone) {
           return dns::isNameWithin(query.name(), zone);
         });
}

Cache::Found ForwardingResolver::findCached(const dns::Query& query, const resolve::Request& request,
                                             BootClock::time_point now) {
  return cache_->find(query, now, [&](const dns::PackedResponse& response) {
    return isAlone(request) || aliases_.mayAnswer(query, request, response);
  });
}

resolve::QueryOutcome ForwardingResolver::answerFromCache(const dns::Query& query, const resolve::Request& request) {
  const Cache::Found found = findCached(query, request, request.now);
  if (found.state == Cache::State::kMiss) return answerFromCut(query, request);
  if (found.state == Cache::State::kStale) {
    // Where the upstream is to be believed first, the client waits for it (onResult()), unless it is known to fail:
    // then one client in Cache::Options::recheck waits, and the others do not.
    const bool verify = mustVerify(query, request.now);
    if (verify && !found.has_failed) return resolve::QueryOutcome::next();
    if (found.wants_refresh) cache_->noteRefresh(query, request.now);
    if (found.wants_refresh && verify) return resolve::QueryOutcome::next();
    const size_t size = writeStale(found, query, request.response_limit);
    if (found.wants_refresh) refresh(query, request);
    return cached(size);
  }
  const size_t size =
      dns::writePackedResponse(*found.response, query, request.response_limit, writeOptions(found.age_seconds));
  if (found.wants_prefetch) refresh(query, request);
  return cached(size);
}

// With what is known of a name above, where it is known not to exist. Not kept as the answer of this name: else a flood of
// random names would fill the cache with what is one entry.
resolve::QueryOutcome ForwardingResolver::answerFromCut(const dns::Query& query, const resolve::Request& request) {
  const Cache::Cut cut = cache_->findCut(query, request.now);
  if (cut.response == nullptr || !isAskedAlike(query, cut.name)) return resolve::QueryOutcome::next();
  StoredResponse denial;
  if (!denyBelow(query, cut.name, *cut.response, denial)) return resolve::QueryOutcome::next();
  cache_->noteCutHit();
  dns::WriteOptions options = writeOptions(cut.age_seconds);
  options.ede = dns::EdeCode::kSynthesized;
  return cached(dns::writePackedResponse(*denial.packed, query, request.response_limit, options));
}

// Whether the servers that are asked for `query` are those that are asked for `name`: what others have denied says nothing
// of a zone that has servers of its own.
bool ForwardingResolver::isAskedAlike(const dns::Query& query, std::span<const uint8_t> name) const {
  const dns::OwnQuery above(dns::Name::fromWire(name), query.qtype, query.qclass, query.flags & dns::kFlagRd,
                            HashSeed{});
  return std::ranges::all_of(
      forwarders_, [&](const auto& forwarder) { return forwarder->serves(query) == forwarder->serves(above.query()); });
}

// Not of servers that are known to be down: each of a thousand names would be waited for.
bool ForwardingResolver::mustVerify(const dns::Query& query, BootClock::time_point now) const {
  if (!options_.verify_stale) return false;
  const size_t forwarder = findForwarder(query, 0);
  return forwarder == forwarders_.size() || forwarders_[forwarder]->silence(now) != std::chrono::nanoseconds::max();
}

// Up to Options::verify_time after the first question that the servers did not answer, but long enough for one that is
// there again.
std::chrono::nanoseconds ForwardingResolver::clientResponseTime(size_t forwarder, BootClock::time_point now) const {
  const std::chrono::nanoseconds silence = forwarders_[forwarder]->silence(now);
  const std::chrono::nanoseconds left =
      options_.verify_time - std::min<std::chrono::nanoseconds>(silence, options_.verify_time);
  return std::max<std::chrono::nanoseconds>(left, std::min(kMinClientResponseTime, options_.verify_time));
}

dns::WriteOptions ForwardingResolver::writeOptions(uint32_t age_seconds) {
  dns::WriteOptions options;
  options.age_seconds = age_seconds;
  options.minimal = options_.minimal;
  if (options_.loadbalance) options.addresses = {.rotation = ++rotation_, .preferred = options_.preferred_networks};
  return options;
}

size_t ForwardingResolver::writeStale(const Cache::Found& found, const dns::Query& query, size_t limit) {
  cache_->noteServedStale();
  dns::WriteOptions options = writeOptions(0);
  options.ttl_seconds = static_cast<uint32_t>(options_.stale_ttl.count());
  options.ede =
      found.response->rcode == dns::Rcode::kNxDomain ? dns::EdeCode::kStaleNxdomainAnswer : dns::EdeCode::kStaleAnswer;
  return dns::writePackedResponse(*found.response, query, limit, options);
}

size_t ForwardingResolver::findForwarder(const dns::Query& query, size_t first) const {
  while (first < forwarders_.size() && !forwarders_[first]->serves(query)) ++first;
  return first;
}

void ForwardingResolver::forward(const Pending& pending, size_t forwarder, const std::shared_ptr<Timers>& timers) {
  const resolve::Request request = pending->request();
  QueryOrigin origin = QueryOrigin::of(pending->query(), request);
  origin.urgent = isUrgent(pending->query(), request);
  const auto done = [this, pending, forwarder, timers](const ForwardResult& result) {
    ForwardResult room;
    onResult(pending, forwarder, timers, permitted(pending->query(), result, room));
  };
  // Not what another block's alias leads to: the client gets it as a part of that one's answer, which has its own limit.
  const auto limit = [pending, origin, is_part = request.inner_depth > 0] {
    if (!is_part) pending->limitResponse(Forwarder::truncationLimit(origin));
  };
  const auto wait = forwarders_[forwarder]->resolve(
      pending->query(), origin, [this, pending, origin, done, limit](const ForwardResult& said) {
        ForwardResult room;
        const ForwardResult& result = aliases_.withoutOwn(pending->query(), pending->kept(), said, room);
        const auto left = pending->receivedAt() + Forwarder::kTotalTime - BootClock::now();
        const bool in_time = left >= AliasFollower::kTime && !pending->isAnswered();
        if (result.next || !AliasFollower::isUnfinished(result) || !in_time) return done(result);
        aliases_.follow(pending->query(), origin, result, {.asked = pending->kept(), .done = done, .limit = limit});
      });
  if (wait == Forwarder::Wait::kForLittle) limit();
}

bool ForwardingResolver::isOwnName(const dns::Query& query) const {
  return std::any_of(options_.own_names.begin(), options_.own_names.end(), [&query](const dns::Name& name) {
    return name.size() == query.qname_size && dns::isNameWithin(query.name(), name);
  });
}

// `result` as clients may know it: itself, or what is written to `room`.
const ForwardResult& ForwardingResolver::permitted(const dns::Query& query, const ForwardResult& result,
                                                   ForwardResult& room) const {
  if (!options_.rebinding || !result.response || isOwnName(query)) return result;
  auto response = options_.rebinding->apply(query, result.response);
  if (response == result.response) return result;
  room = result;
  room.response = std::move(response);
  room.rcode = room.response->packed->rcode;
  return room;
}

bool ForwardingResolver::isUrgent(const dns::Query& query, const resolve::Request& request) const {
  if (!isOwnName(query)) return false;
  const auto source = IpAddress::fromSockaddr(request.source);
  return source && net::isLocalAddress(source->unmapped()).value_or(true);
}

// Asks again for what the cache still answers. No client waits; the forwarder merges it with what is in flight.
void ForwardingResolver::refresh(const dns::Query& query, const resolve::Request& request) {
  const size_t forwarder = findForwarder(query, 0);
  if (forwarder == forwarders_.size() || (query.flags & dns::kFlagRd) == 0) return;
  const auto refresh = std::make_shared<Refresh>(query, request);
  refreshFrom(forwarder, refresh);
}

void ForwardingResolver::refreshFrom(size_t forwarder, const std::shared_ptr<Refresh>& refresh) {
  forwarders_[forwarder]->resolve(
      refresh->query, refresh->origin, [this, forwarder, refresh](const ForwardResult& said) {
        ForwardResult room;
        const ForwardResult& result = aliases_.withoutOwn(refresh->query, refresh->asked, said, room);
        const size_t next = result.next ? findForwarder(refresh->query, forwarder + 1) : forwarders_.size();
        if (next < forwarders_.size()) return refreshFrom(next, refresh);
        const auto done = [this, refresh](const ForwardResult& whole) {
          ForwardResult allowed;
          remember(refresh->query, permitted(refresh->query, whole, allowed));
        };
        if (!AliasFollower::isUnfinished(result)) return done(result);
        aliases_.follow(refresh->query, refresh->origin, result, {.asked = refresh->asked, .done = done});
      });
}

void ForwardingResolver::ask(const dns::Query& query, const std::function<void(bool answered)>& done) {
  const size_t forwarder = findForwarder(query, 0);
  if (forwarder == forwarders_.size()) return done(false);
  forwarders_[forwarder]->resolve(query, QueryOrigin{.urgent = true},
                                  [done](const ForwardResult& result) { done(result.response != nullptr); });
}

std::vector<std::weak_ptr<const ServerReports>> ForwardingResolver::reports() const {
  std::vector<std::weak_ptr<const ServerReports>> reports;
  for (const auto& forwarder : forwarders_) reports.push_back(forwarder->reports());
  return reports;
}

bool ForwardingResolver::isBusy() const {
  return std::any_of(forwarders_.begin(), forwarders_.end(),
                     [](const auto& forwarder) { return forwarder->waiting() > 0; });
}

void ForwardingResolver::onResult(const Pending& pending, size_t forwarder, const std::shared_ptr<Timers>& timers,
                                  const ForwardResult& result) {
  const dns::Query& query = pending->query();
  if (pending->isAnswered()) return remember(query, result);
  if (result.next) {
    const size_t next = findForwarder(query, forwarder + 1);
    if (next < forwarders_.size()) return forward(pending, next, timers);
  }
  if (isFailure(result) && options_.errors && !result.reason.empty()) {
    options_.errors->onFailed(query, result.rcode, result.reason);
  }
  remember(query, result);
  if (isWorseThanStale(result) && answerStale(*pending)) return;
  if (putOff(*pending)) return;
  pending->makeRoom(room_, options_.nsid.get());
  finish(*pending, writeResult(query, pending->responseLimit(), result), options_.directive);
}

// Whether a stale answer, if there is one, is given instead.
bool ForwardingResolver::isWorseThanStale(const ForwardResult& result) const {
  return isFailure(result) || (cache_ && cache_->options().prefer_positive && !hasAnswer(*result.response));
}

// The upstream is as good as silent: the next queries do not wait for it.
void ForwardingResolver::onClientResponseTimer(resolve::DeferredReply& pending) {
  if (!pending.isAnswered() && answerStale(pending)) cache_->noteFailure(pending.query(), BootClock::now());
}

// The client has waited long enough. Nothing to remember: the servers may still answer.
void ForwardingResolver::cancel(resolve::DeferredReply& pending) {
  if (pending.isAnswered()) return;
  const dns::Query& query = pending.query();
  if (options_.errors) {
    options_.errors->onFailed(query, dns::Rcode::kServFail, fmt::format("cancelled after {}", options_.cancel_time));
  }
  if (answerStale(pending) || putOff(pending)) return;
  pending.makeRoom(room_, options_.nsid.get());
  const ForwardResult failure{
      .response = nullptr, .rcode = dns::Rcode::kServFail, .ede = dns::EdeCode::kNoReachableAuthority, .reason = {}};
  finish(pending, writeResult(query, pending.responseLimit(), failure), options_.directive);
}

// False if there is nothing stale to answer with.
bool ForwardingResolver::answerStale(resolve::DeferredReply& pending) {
  const dns::Query& query = pending.query();
  const Cache::Found stale = isCached(query) ? findCached(query, pending.request(), BootClock::now()) : Cache::Found{};
  if (stale.state != Cache::State::kStale) return false;
  if (putOff(pending)) return true;
  pending.makeRoom(room_, options_.nsid.get());
  finish(pending, writeStale(stale, query, pending.responseLimit()), options_.cache_directive);
  return true;
}

// Whether the client has no room for an answer now and asks again by itself.
bool ForwardingResolver::putOff(resolve::DeferredReply& pending) {
  if (!pending.pushBack()) return false;
  for (const auto& forwarder : forwarders_) forwarder->noteDeferred();  // one of them may be calling
  return true;
}

void ForwardingResolver::remember(const dns::Query& query, const ForwardResult& result) {
  // An answer to a query without RD is not for queries with RD.
  if (!isCached(query) || (query.flags & dns::kFlagRd) == 0) return;
  if (result.response) {
    if (result.response == last_remembered_) return;
    last_remembered_ = result.response;
    if (isWorseThanStale(result)) cache_->noteFailure(query, BootClock::now());
    cache_->insert(query, *result.response, BootClock::now());
  } else if (result.rcode == dns::Rcode::kServFail &&
             !result.overloaded) {  // RFC 9520 §3.1: that no server answered is remembered too
    StoredResponse failure;
    failure.kind = ResponseKind::kFailure;
    dns::ResponseSections sections{.rcode = result.rcode, .has_ede = result.ede.has_value()};
    if (result.ede) sections.ede = dns::code(*result.ede);
    failure.packed = dns::PackedResponse::make(sections, {}, {});
    cache_->noteFailure(query, BootClock::now());
    cache_->insert(query, failure, BootClock::now());
  }
}

size_t ForwardingResolver::writeResult(const dns::Query& query, size_t limit, const ForwardResult& result) {
  if (!result.response) {
    dns::ResponseBuilder response(query, limit);
    if (result.ede) response.setEde(*result.ede);
    return response.finish(result.rcode, dns::kFlagRa);
  }
  dns::WriteOptions options = writeOptions(0);
  if (isCached(query) &&
      result.response->kind != ResponseKind::kUncacheable) {  // the same TTLs as for the next queries
    const Cache::Pool& pool = cache_->pool(result.response->kind);
    options.max_ttl_seconds = std::min(pool.max_ttl_seconds, signatureSecondsLeft(*result.response));
    options.min_ttl_seconds = std::min(pool.min_ttl_seconds, options.max_ttl_seconds);
  }
  return dns::writePackedResponse(*result.response->packed, query, limit, options);
}

void ForwardingResolver::finish(resolve::DeferredReply& pending, size_t size, resolve::DirectiveId by) {
  pending.finish(size, options_.limiter.get(), options_.log.get(), by);
}

}  // namespace idetcd::resolver
