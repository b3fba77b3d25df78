#include "resolve/recursion.h"

#include <algorithm>

#include "dns/response.h"
#include "net/udp_client.h"
#include "resolve/forward_message.h"

namespace idetcd::resolve {

namespace {

constexpr uint32_t kStaleTtlSeconds = 30;  // RFC 8767 §4

// Whether nothing has been learnt about the name, not even that it does not exist.
bool isFailure(const ForwardResult& result) {
  return !result.response || result.response->kind == ResponseKind::kFailure ||
         (result.rcode != dns::Rcode::kNoError && result.rcode != dns::Rcode::kNxDomain);
}

}  // namespace

// A client that hears what is old if the upstream takes too long. Lives as long as its question is on its way.
struct Recursion::Patience {
  Patience(Recursion& waiting_recursion, Pending waiting)
      : recursion(waiting_recursion), pending(std::move(waiting)), deadline(this, [](void* self) {
          auto& patience = *static_cast<Patience*>(self);
          patience.recursion.onPatienceOver(*patience.pending);
        }) {}

  Recursion& recursion;
  Pending pending;
  net::Deadline deadline;
};

// A question that nobody waits for, on behalf of the client that gave rise to it.
struct Recursion::Refresh {
  Refresh(const dns::Query& client_query, const Request& request)
      : query(client_query), asker(Asker::of(client_query, request)) {
    message.assign(query);
    query.message = message.data();  // the other buffer is the client's
    asker.transport = Transport::kUdp;
    asker.background = true;
  }

  ForwardMessage message;
  dns::Query query;
  Asker asker;
};

Recursion::Recursion(net::EventLoop& loop, Options options, std::unique_ptr<Cache> cache,
                     std::vector<std::unique_ptr<Forwarder>> forwarders, std::shared_ptr<const QueryLog> log,
                     std::shared_ptr<ErrorLog> errors)
    : options_(std::move(options)),
      patience_(loop, kPatience),
      plain_{.answers_only = options_.minimal, .single_answer = options_.loadbalance},
      cache_(std::move(cache)),
      aliases_(loop,
               [this](const dns::Query& query, const Asker& asker,
                      Forwarder::Callback done) -> std::optional<Forwarder::Wait> {
                 const size_t forwarder = findForwarder(query, 0);
                 if (forwarder == forwarders_.size()) return std::nullopt;
                 return forwarders_[forwarder]->resolve(query, asker, std::move(done));
               }),
      forwarders_(std::move(forwarders)),
      log_(std::move(log)),
      errors_(std::move(errors)) {}

Outcome Recursion::answer(const dns::Query& query, const Request& request) {
  if (isCached(query)) {
    const Outcome outcome = answerFromCache(query, request);
    if (!outcome.isNext()) return outcome;
  }
  const size_t forwarder = findForwarder(query, 0);
  if (forwarder == forwarders_.size()) return Outcome::next();
  auto pending = std::allocate_shared<PendingQuery>(PoolAllocator<PendingQuery>(pending_), query, request);
  std::shared_ptr<Patience> patience;
  if (options_.verify_stale) {
    patience = std::make_shared<Patience>(*this, pending);
    patience_.arm(patience->deadline);
  }
  forward(pending, forwarder, patience);
  return Outcome::pending();
}

bool Recursion::isCached(const dns::Query& query) const {
  return cache_ &&
         std::any_of(options_.cache_zones.begin(), options_.cache_zones.end(), [&query](const dns::Name& zone) {
           return zone.isRoot() || dns::isNameWithin(query.name(), zone);
         });
}

Outcome Recursion::answerFromCache(const dns::Query& query, const Request& request) {
  const Cache::Found found = cache_->find(query, request.now);
  if (found.state == Cache::State::kMiss) return Outcome::next();
  if (found.state == Cache::State::kStale) {
    // Where the upstream is to be believed first, the client waits for it (onResult()), unless it is known to fail:
    // then one client in Cache::Options::recheck waits, and the others do not.
    if (options_.verify_stale && !found.has_failed) return Outcome::next();
    if (found.wants_refresh) cache_->noteRefresh(query, request.now);
    if (found.wants_refresh && options_.verify_stale) return Outcome::next();
    const size_t size = writeStale(found, query, request.response_limit);
    if (found.wants_refresh) refresh(query, request);
    return Outcome::answer(size);
  }
  const size_t size =
      writeStoredResponse(found.response, query, request.response_limit, writeOptions(found.age_seconds));
  if (found.wants_prefetch) refresh(query, request);
  return Outcome::answer(size);
}

WriteOptions Recursion::writeOptions(uint32_t age_seconds) {
  WriteOptions options;
  options.age_seconds = age_seconds;
  options.minimal = options_.minimal;
  if (options_.loadbalance) options.rotation = ++rotation_;
  return options;
}

size_t Recursion::writeStale(const Cache::Found& found, const dns::Query& query, size_t limit) {
  WriteOptions options = writeOptions(0);
  options.ttl_seconds = kStaleTtlSeconds;
  options.ede =
      found.response.rcode == dns::Rcode::kNxDomain ? dns::EdeCode::kStaleNxdomainAnswer : dns::EdeCode::kStaleAnswer;
  return writeStoredResponse(found.response, query, limit, options);
}

size_t Recursion::findForwarder(const dns::Query& query, size_t first) const {
  while (first < forwarders_.size() && !forwarders_[first]->serves(query)) ++first;
  return first;
}

void Recursion::forward(const Pending& pending, size_t forwarder, const std::shared_ptr<Patience>& patience) {
  const Request request = pending->request();
  Asker asker = Asker::of(pending->query(), request);
  asker.urgent = isUrgent(pending->query(), request);
  const auto done = [this, pending, forwarder, patience](const ForwardResult& result) {
    onResult(pending, forwarder, patience, result);
  };
  const auto limit = [pending, asker] { pending->limitResponse(Forwarder::littleResponse(asker)); };
  const auto wait = forwarders_[forwarder]->resolve(
      pending->query(), asker, [this, pending, asker, done, limit](const ForwardResult& result) {
        const auto left = pending->receivedAt() + Forwarder::kTotalTime - BootClock::now();
        const bool in_time = left >= AliasFollower::kTime && !pending->isAnswered();
        if (result.next || !AliasFollower::isUnfinished(result) || !in_time) return done(result);
        aliases_.follow(pending->query(), asker, result, {.done = done, .limit = limit});
      });
  if (wait == Forwarder::Wait::kForLittle) limit();
}

bool Recursion::isUrgent(const dns::Query& query, const Request& request) const {
  const auto is_asked = [&query](const dns::Name& name) {
    return name.size() == query.qname_size && dns::isNameWithin(query.name(), name);
  };
  if (std::none_of(options_.own_names.begin(), options_.own_names.end(), is_asked)) return false;
  const auto source = IpAddress::fromSockaddr(request.source);
  return source && net::isLocalAddress(source->unmapped());
}

// Asks anew for what the cache still answers. Nobody waits; the forwarder merges it with what is in flight.
void Recursion::refresh(const dns::Query& query, const Request& request) {
  const size_t forwarder = findForwarder(query, 0);
  if (forwarder == forwarders_.size() || (query.flags & dns::kFlagRd) == 0) return;
  const auto refresh = std::make_shared<Refresh>(query, request);
  refreshFrom(forwarder, refresh);
}

void Recursion::refreshFrom(size_t forwarder, const std::shared_ptr<Refresh>& refresh) {
  forwarders_[forwarder]->resolve(
      refresh->query, refresh->asker, [this, forwarder, refresh](const ForwardResult& result) {
        const size_t next = result.next ? findForwarder(refresh->query, forwarder + 1) : forwarders_.size();
        if (next < forwarders_.size()) return refreshFrom(next, refresh);
        const auto done = [this, refresh](const ForwardResult& whole) { remember(refresh->query, whole); };
        if (!AliasFollower::isUnfinished(result)) return done(result);
        aliases_.follow(refresh->query, refresh->asker, result, {.done = done, .limit = {}});
      });
}

void Recursion::ask(const dns::Query& query, const std::function<void(bool answered)>& done) {
  const size_t forwarder = findForwarder(query, 0);
  if (forwarder == forwarders_.size()) return done(false);
  forwarders_[forwarder]->resolve(query, Asker{.urgent = true},
                                  [done](const ForwardResult& result) { done(result.response != nullptr); });
}

bool Recursion::isBusy() const {
  return std::any_of(forwarders_.begin(), forwarders_.end(),
                     [](const auto& forwarder) { return forwarder->waiting() > 0; });
}

void Recursion::onResult(const Pending& pending, size_t forwarder, const std::shared_ptr<Patience>& patience,
                         const ForwardResult& result) {
  const dns::Query& query = pending->query();
  if (pending->isAnswered()) return remember(query, result);
  if (result.next) {
    const size_t next = findForwarder(query, forwarder + 1);
    if (next < forwarders_.size()) return forward(pending, next, patience);
  }
  if (isFailure(result)) {
    if (errors_ && !result.reason.empty()) errors_->write(query, result.rcode, result.reason);
    remember(query, result);
    if (answerStale(*pending)) return;
  } else {
    remember(query, result);
  }
  if (pending->defer()) return;
  pending->makeRoom(room_, options_.identity.get());
  finish(*pending, writeResult(query, pending->responseLimit(), result));
}

// The upstream is as good as silent: those who come next do not wait for it.
void Recursion::onPatienceOver(PendingQuery& pending) {
  if (answerStale(pending)) cache_->noteFailure(pending.query(), BootClock::now());
}

// False if there is nothing stale to answer with.
bool Recursion::answerStale(PendingQuery& pending) {
  const dns::Query& query = pending.query();
  const Cache::Found stale = isCached(query) ? cache_->find(query, BootClock::now()) : Cache::Found{};
  if (stale.state != Cache::State::kStale) return false;
  if (pending.defer()) return true;
  pending.makeRoom(room_, options_.identity.get());
  finish(pending, writeStale(stale, query, pending.responseLimit()));
  return true;
}

void Recursion::remember(const dns::Query& query, const ForwardResult& result) {
  // What an upstream says to who wants no recursion is not for those who want it.
  if (!isCached(query) || (query.flags & dns::kFlagRd) == 0) return;
  if (result.response) {
    if (result.response == last_remembered_) return;
    last_remembered_ = result.response;
    if (isFailure(result)) cache_->noteFailure(query, BootClock::now());
    cache_->insert(query, *result.response, BootClock::now());
  } else if (result.rcode == dns::Rcode::kServFail &&
             !result.overloaded) {  // RFC 9520 §3.1: that nobody answered is remembered too
    StoredResponse failure;
    failure.kind = ResponseKind::kFailure;
    failure.sections.rcode = result.rcode;
    cache_->noteFailure(query, BootClock::now());
    if (result.ede) failure.sections.ede = dns::code(*result.ede);
    cache_->insert(query, failure, BootClock::now());
  }
}

size_t Recursion::writeResult(const dns::Query& query, size_t limit, const ForwardResult& result) {
  if (!result.response) {
    dns::ResponseBuilder response(query, limit);
    if (result.ede) response.setEde(*result.ede);
    return response.finish(result.rcode, dns::kFlagRa);
  }
  WriteOptions options = writeOptions(0);
  if (isCached(query) &&
      result.response->kind != ResponseKind::kUncacheable) {  // the same TTLs as for those who ask next
    const Cache::Pool& pool = cache_->pool(result.response->kind);
    options.max_ttl_seconds = std::min(pool.max_ttl_seconds, signatureSecondsLeft(*result.response));
    options.min_ttl_seconds = std::min(pool.min_ttl_seconds, options.max_ttl_seconds);
  }
  return writeStoredResponse(result.response->sections, query, limit, options);
}

void Recursion::finish(PendingQuery& pending, size_t size) {
  if (log_) {
    log_->write(pending.query(), pending.request(), {pending.query().message, size},
                BootClock::now() - pending.receivedAt());
  }
  pending.send(size);
}

}  // namespace idetcd::resolve
