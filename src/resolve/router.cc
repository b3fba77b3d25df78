#include "resolve/router.h"

#include <ctime>

#include "dns/response.h"

namespace idetcd::resolve {

using dns::ParseOutcome;

namespace {

void applyCookies(const std::shared_ptr<const dns::ServerCookies>& cookies, dns::Query& query, const Request& request) {
  if (!cookies || !query.asksFor(dns::kAsksCookie)) return;
  const auto client = IpAddress::fromSockaddr(request.source);
  if (client) cookies->apply(query, *client, static_cast<uint32_t>(std::time(nullptr)));
}

// A query without a question, which asks whether its cookie is still good (RFC 7873 §5.4).
bool isBadCookieQuery(const dns::Query& query) {
  return query.error == dns::Rcode::kNoError && query.asksFor(dns::kAsksCookie) && query.cookie.in_response &&
         query.cookie.judgement == dns::Cookie::Judgement::kBad;
}

// Names of another block are below the cluster's zone: the names above them exist, whatever the cluster says.
bool isDivided(const ClusterZone& cluster, const std::vector<Router::Zone>& zones) {
  const dns::Name& zone = cluster.store().zone();
  return std::ranges::any_of(
      zones, [&zone](const Router::Zone& other) { return other.name.isWithin(zone) && !(other.name == zone); });
}

}  // namespace

Router::Router(std::vector<Zone> zones, HashSeed seed, std::shared_ptr<QueryMeter> unrouted,
               std::shared_ptr<QuerySamples> samples)
    : unrouted_(std::move(unrouted)), samples_(std::move(samples)), seed_(seed) {
  std::stable_sort(zones.begin(), zones.end(),
                   [](const Zone& a, const Zone& b) { return a.name.size() > b.name.size(); });
  for (Zone& zone : zones) {
    assert(std::ranges::count(zones, zone.name, &Zone::name) == 1);
    has_gate_ |= zone.chain->parts.gate != nullptr;
    Shortcut shortcut = Shortcut::kNone;
    const bool is_direct = zone.chain->isDirect() && !isDivided(*zone.chain->cluster(), zones);
    if (is_direct) {
      shortcut = zone.meter ? Shortcut::kMeteredCluster : Shortcut::kCluster;
    } else if (zone.chain->hasHandlersOnly() && !zone.meter) {
      shortcut = Shortcut::kHandlers;
    }
    if (zone.meter) meters_.push_back(zone.meter.get());
    routes_.push_back(
        {.name = zone.name, .chain = std::move(zone.chain), .meter = std::move(zone.meter), .shortcut = shortcut});
  }
  if (unrouted_) meters_.push_back(unrouted_.get());
}

// DS of a block's zone is the next block's above it that has the zone above that one, or, if the block itself cannot ask
// other servers, the next one's that can.
const Router::Route& Router::routeOfDs(const dns::Query& query, const Route& found) const {
  const auto name = query.name();
  if (name.size() != found.name.size() || name.size() == 1 || found.chain->hasZoneAbove(name)) return found;
  const bool may_ask = (query.flags & dns::kFlagRd) != 0 && !found.chain->parts.recursion_available;
  const auto is_parent = [&](const Route& other) {
    return &other != &found && dns::isNameWithin(name, other.name) &&
           ((may_ask && other.chain->parts.recursion_available) || other.chain->hasZoneAbove(name));
  };
  const auto parent = std::ranges::find_if(routes_, is_parent);
  return parent != routes_.end() ? *parent : found;
}

// Without a shortcut.
void Router::beginDs(Job& job, const Route& found) const {
  const Route& asked = routeOfDs(job.query, found);
  job.chain = asked.chain.get();
  job.meter = asked.meter.get();
  job.chain->prefetchBucket(job.query);
}

// A transfer, a NOTIFY and a signed query go to the block of their zone, if that has what they need.
void Router::beginOther(Job& job) const {
  if (job.outcome == ParseOutcome::kDrop) return;
  dns::Query& query = job.query;
  const Route* found = query.qname_size > 0 ? route(query) : nullptr;
  const bool is_notify = job.outcome == ParseOutcome::kError && query.opcode() == dns::Opcode::kNotify;
  const bool is_signed = query.tsig_offset != 0 && query.error == dns::Rcode::kNotAuth;
  if (found != nullptr && is_notify && found->chain->takesNotifies()) {
    if (query.tsig_offset != 0 && !found->chain->parts.signatures) return reject(job, dns::Rcode::kNotAuth);
    query.error = dns::Rcode::kNoError;
    job.outcome = ParseOutcome::kQuery;
  } else if (found != nullptr && is_signed && found->chain->parts.signatures) {
    job.outcome = dns::passTsig(query);
    if (job.outcome == ParseOutcome::kQuery && query.qtype == dns::code(dns::RrType::kDs))
      found = &routeOfDs(query, *found);
  }
  if (job.outcome == ParseOutcome::kTransfer && (found == nullptr || !found->chain->transfers()))
    return reject(job, query.error);
  if (job.outcome == ParseOutcome::kError) return;
  job.outcome = ParseOutcome::kQuery;
  job.chain = found->chain.get();
  job.meter = found->meter.get();
}

// Above the reverse names of all addresses.
bool Router::isReverseTree(const dns::Query& query) {
  const auto is = [name = query.name()](std::string_view tree) { return std::ranges::equal(tree, name); };
  return is({"\7in-addr\4arpa\0", 14}) || is({"\3ip6\4arpa\0", 10}) || is({"\4arpa\0", 6});
}

bool Router::isAboveZone(const dns::Query& query) const {
  const auto name = query.name();
  const auto is_below = [&name](const Route& route) {
    size_t pos = 0;
    while (route.name.size() - pos > name.size()) pos += size_t{1} + route.name.data()[pos];
    return pos > 0 && std::ranges::equal(route.name.wire().subspan(pos), name);
  };
  return std::ranges::any_of(routes_, is_below);
}

bool Router::isBusy() const {
  return std::any_of(routes_.begin(), routes_.end(), [](const Route& route) { return route.chain->isBusy(); });
}

QueryOutcome Router::answerInner(const Chain& asking, size_t end, const dns::Query& query,
                                 const Request& request) const {
  constexpr uint8_t kMaxDepth = 4;  // of blocks that lead to each other
  if (request.inner_depth > kMaxDepth) return refuse(query, request.response_limit, 0);
  const Route* found = route(query);
  const QueryOutcome not_ours = isAboveZone(query) ? QueryOutcome::nextOfAbove() : QueryOutcome::next();
  if (found == nullptr) return not_ours;
  const bool is_ds = query.qtype == dns::code(dns::RrType::kDs);
  const Chain& chain = *(is_ds ? routeOfDs(query, *found) : *found).chain;
  if (&chain == &asking) {
    const QueryOutcome outcome = chain.answerInner(query, request, end);
    return outcome.isNext() && !outcome.isNextOfExisting() ? not_ours : outcome;
  }
  if (request.own_only) return refuse(query, request.response_limit, 0);
  const QueryOutcome outcome = chain.answerInner(query, request, chain.size());
  return outcome.isNext() ? refuse(query, request.response_limit, 0) : outcome;
}

QueryOutcome Router::serve(Job& job, Request& request) const {
  if (job.chain == nullptr) {
    if (job.outcome == ParseOutcome::kDrop) return QueryOutcome::drop(DropReason::kMalformed);
    return unrouted_ ? serveMetered(job, *unrouted_, request) : serveUnrouted(job, request);
  }
  return job.meter != nullptr ? serveMetered(job, *job.meter, request) : serveBlock(job, request);
}

QueryOutcome Router::serveMetered(Job& job, QueryMeter& meter, Request& request) const {
  if (!request.is_again) meter.onQuery(job.query, request);
  QueryOutcome outcome;
  if (job.shortcut == Shortcut::kMeteredCluster) {
    outcome = job.chain->askCluster<true>(job.query, request, &meter);
  } else {
    request.meter = &meter;
    outcome = job.chain == nullptr ? serveUnrouted(job, request) : serveBlock(job, request);
    request.meter = nullptr;
  }
  if (outcome.kind == QueryOutcome::Kind::kAnswer) {
    meter.onAnswerInBatch(job.query, request, outcome.size, outcome.answered_by);
  }
  return outcome;
}

// Each is a function of its own, so that none saves registers for another. (A block without `prometheus`.)
QueryOutcome Router::serveDirectly(Job& job, Request& request) { return job.chain->askCluster(job.query, request); }
QueryOutcome Router::serveHandlers(Job& job, Request& request) { return job.chain->askHandlers(job.query, request); }

// In a batch, which is counted at its end.
QueryOutcome Router::serveUncounted(Job& job, Request& request) {
  const QueryOutcome outcome = job.chain->askCluster<true>(job.query, request, job.meter);
  job.answered = outcome;
  return outcome;
}

void Router::count(std::span<const Job> jobs, const SocketAddress& local) {
  const size_t family = local.ip.isV4() ? 0 : 1;
  QueryMeter* meter = nullptr;  // almost always one for all of the batch
  QueryMeter::BatchSums sums;
  for (const Job& job : jobs) {
    if (job.shortcut != Shortcut::kMeteredCluster) continue;
    if (job.meter != meter) [[unlikely]] {
      if (meter != nullptr) meter->add(std::exchange(sums, {}));
      meter = job.meter;
    }
    meter->countInBatch(job.query, family, job.answered, sums);
  }
  if (meter != nullptr) meter->add(sums);
}

void Router::noteBatch(std::span<const Job> jobs, const BatchCounts& counts, BootClock::time_point begin) const {
  const auto now = BootClock::now();
  for (QueryMeter* meter : meters_) {
    if (meter->hasUntimed()) meter->onBatchDone(now - begin);
  }
  if (samples_ != nullptr) samples_->onBatchDone(jobs, counts, now - begin, now);
}

QueryOutcome Router::serveBlock(Job& job, const Request& request) const {
  applyCookies(job.chain->parts.cookies, job.query, request);
  if (job.query.qtype == dns::code(dns::RrType::kDs)) [[unlikely]] {
    Request asked = request;
    asked.name_exists = route(job.query)->chain.get() != job.chain;  // it is the zone of another block
    return job.chain->answer(job.query, asked);
  }
  return job.chain->answer(job.query, request);
}

// Messages that are no query, or not for us.
QueryOutcome Router::serveUnrouted(Job& job, const Request& request) const {
  const Chain::Parts* parts = partsForUnrouted(job.query);
  if (parts == nullptr) return refuseUnrouted(job, request);
  applyCookies(parts->cookies, job.query, request);
  if (parts->limiter && !parts->limiter->mayAsk(job.query, request)) return QueryOutcome::drop(DropReason::kRrl);
  return limitOutcome(parts->limiter.get(), job.query, request, refuseUnrouted(job, request));
}

// Of the block of its zone, if a name can be read; else of the block with the shortest zone. Null: there is no block.
const Chain::Parts* Router::partsForUnrouted(const dns::Query& query) const {
  if (routes_.empty()) return nullptr;
  const Route* found = query.qname_size > 0 ? route(query) : nullptr;
  return &(found != nullptr ? *found : routes_.back()).chain->parts;
}

QueryOutcome Router::refuseUnrouted(Job& job, const Request& request) const {
  const size_t limit = request.response_limit;
  if (has_gate_) {
    const Gate::AclVerdict verdict = judgeUnrouted(job, request);
    // Only a query can be answered with no records: for other messages (NOTIFY, UPDATE) that would mean success.
    const bool asks = job.query.opcode() == dns::Opcode::kQuery;
    if (verdict != Gate::AclVerdict::kFilter || asks) {
      if (const QueryOutcome outcome = Gate::answer(verdict, job.query, limit, 0); !outcome.isNext()) return outcome;
    }
  }
  if (job.outcome == ParseOutcome::kError) {
    if (isBadCookieQuery(job.query)) job.query.error = dns::Rcode::kBadCookie;
    return QueryOutcome::answer(dns::writeErrorResponse(job.query, limit));
  }
  return refuse(job.query, limit, 0);
}

Gate::AclVerdict Router::judgeUnrouted(const Job& job, const Request& request) const {
  const auto source = IpAddress::fromSockaddr(request.source);
  if (job.query.qname_size > 0) {  // it can be read, though it cannot be answered
    if (const Route* found = route(job.query); found != nullptr) {
      const auto& gate = found->chain->parts.gate;
      return gate ? gate->judge(source, job.query.name(), job.query.qtype) : Gate::AclVerdict::kAllow;
    }
  }
  Gate::AclVerdict strictest = Gate::AclVerdict::kAllow;
  const bool has_root = !routes_.empty() && routes_.back().name.isRoot();
  for (const Route& route : routes_) {
    const auto& gate = route.chain->parts.gate;
    if (!gate || (has_root && !route.name.isRoot())) continue;
    strictest = std::max(strictest, gate->judge(source, route.name.wire(), std::nullopt));
  }
  return strictest;
}

}  // namespace idetcd::resolve
