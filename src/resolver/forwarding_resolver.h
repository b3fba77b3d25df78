// Names of the rest of the world: from the cache, else through the forwarders. One per server block and loop; loop
// thread only.
#pragma once

#include "base/block_pool.h"
#include "dns/query.h"
#include "net/deadline.h"
#include "net/event_loop.h"
#include "records/epoch.h"
#include "resolve/chain.h"
#include "resolve/deferred_reply.h"
#include "resolve/handler.h"
#include "resolve/request.h"
#include "resolve/router.h"
#include "resolver/alias_follower.h"
#include "resolver/cache.h"
#include "resolver/cache_saver.h"
#include "resolver/forwarder.h"
#include "resolver/kept_caches.h"
#include "resolver/rebinding_filter.h"

namespace idetcd::resolver {

class ForwardingResolver final : public resolve::Handler, public resolve::InternalQueries {
 public:
  // A client waits so long, where the upstreams have been silent to others for Options::verify_time already.
  static constexpr std::chrono::milliseconds kMinClientResponseTime{200};
  // And so long, where Options::cancel_time is over before its question is asked.
  static constexpr std::chrono::milliseconds kMinCancelTime{1};

  struct Options {
    std::vector<dns::Name> cache_zones{dns::Name{}};  // whose names are cached
    // Ask the upstream before a stale answer is served, and serve it if there is no other after `verify_time`, which
    // begins when the upstream fell silent; at once while it is known to be down.
    bool verify_stale = false;
    std::chrono::milliseconds verify_time{1800};  // above 0
    std::chrono::seconds stale_ttl{30};
    // A client gets SERVFAIL after so long, or what is stale; 0: no sooner than the forwarders give up.
    std::chrono::milliseconds cancel_time{0};
    bool minimal = false;
    bool loadbalance = false;                     // the addresses of answers are rotated
    std::vector<IpNetwork> preferred_networks{};  // and those within these come first (dns::AddressOrder)
    // The directives that have answered: for what comes from upstreams, and from the cache.
    resolve::DirectiveId directive = resolve::DirectiveNames::kServer;
    resolve::DirectiveId cache_directive = resolve::DirectiveNames::kServer;
    // Names that this process itself resolves by this server, as any program does: the hosts of its etcd. Asked for
    // from this machine they have room before all others.
    std::vector<dns::Name> own_names{};
    // May be null. Of what an upstream brings nothing is kept or answered that did not pass `rebinding`, but for
    // `own_names`, which are the operator's own words.
    std::shared_ptr<RebindingFilter> rebinding{};
    std::shared_ptr<const resolve::NsidSource> nsid{};
    std::shared_ptr<resolve::RateLimiter> limiter{};
    std::shared_ptr<const resolve::QueryObserver> log{};
    std::shared_ptr<resolve::FailureObserver> errors{};
    // The block's: what this one resolves for a client that has not asked for it is asked of the handlers before it, and
    // of other blocks, first. Null: of none. The chain, which will have it as the next handler, outlives it.
    const resolve::Chain* chain = nullptr;
    records::EpochDomain* epochs = nullptr;    // of their data; not null where `chain` is not
    HashSeed hash_seed = randomHashSeed();     // of the queries
    std::shared_ptr<CacheSaver> saver{};       // of the cache; lives as long as the resolver
    std::shared_ptr<LiveCaches::User> user{};  // the same
  };

  // `cache` may be null. `forwarders` are asked in order: the first that serves a name, then, if
  // that one passes its answer's rcode on (`next`), the first behind it that does.
  ForwardingResolver(net::EventLoop& loop, Options options, std::shared_ptr<Cache> cache,
                     std::vector<std::unique_ptr<Forwarder>> forwarders);

  bool prefetches() const override { return cache_ != nullptr; }
  void prefetchBucket(const dns::Query& query) override { cache_->prefetchSlot(query); }
  void prefetchEntry(const dns::Query& query) override { cache_->prefetchEntry(query); }
  // In place from the cache, pending, or next: no forwarder serves the name, and it is not special either. A client
  // that wants no recursion (RD=0) gets what this server knows for itself, and that is not what others have asked for:
  // the cache would reveal which names these were. Nothing is forwarded for it either.
  resolve::QueryOutcome answer(const dns::Query& query, const resolve::Request& request, uint16_t flags) override;
  // Whether a client waits for an upstream.
  bool isBusy() const override;

  // Past the cache.
  void ask(const dns::Query& query, const std::function<void(bool answered)>& done) override;

  const Cache* cache() const { return cache_.get(); }
  // Of each forwarder, in order.
  std::vector<std::weak_ptr<const ServerReports>> reports() const;

 private:
  using Pending = std::shared_ptr<resolve::DeferredReply>;
  struct Timers;
  struct Refresh;

  // The usual case, and fast: what the cache has at hand, else next. A name that must not be asked for elsewhere is not
  // in the cache either, so this comes before it is known what the name is.
  resolve::QueryOutcome answerAtHand(const dns::Query& query, const resolve::Request& request) {
    if (!cache_) return resolve::QueryOutcome::next();
    Cache::FastPath fast_path = fast_path_;
    fast_path.no_others = !isAlone(request);
    Cache::Written written = cache_->writeFresh(query, request.response_limit, request.now, fast_path);
    if (written.names_others != nullptr && aliases_.mayAnswer(query, request, *written.names_others))
      written = cache_->writeFresh(query, request.response_limit, request.now, fast_path_);
    if (written.wants_prefetch) [[unlikely]]
      refresh(query, request);
    return written.size > 0 ? cached(written.size) : resolve::QueryOutcome::next();
  }
  resolve::QueryOutcome cached(size_t size) const {
    resolve::QueryOutcome outcome = resolve::QueryOutcome::answer(size);
    outcome.answered_by = options_.cache_directive;
    return outcome;
  }
  // No name is this server's own, and none is refused: it resolves, and nothing else.
  bool isAlone(const resolve::Request& request) const {
    return options_.chain == nullptr || (place_ == 0 && options_.chain->parts.gate == nullptr &&
                                         (request.router == nullptr || request.router->hasOneBlock()));
  }
  resolve::QueryOutcome answerHere(const dns::Query& query, const resolve::Request& request);
  resolve::QueryOutcome answerOther(const dns::Query& query, const resolve::Request& request, size_t forwarder);
  bool isCached(const dns::Query& query) const;
  Cache::Found findCached(const dns::Query& query, const resolve::Request& request, BootClock::time_point now);
  resolve::QueryOutcome answerFromCache(const dns::Query& query, const resolve::Request& request);
  resolve::QueryOutcome answerFromCut(const dns::Query& query, const resolve::Request& request);
  bool isAskedAlike(const dns::Query& query, std::span<const uint8_t> name) const;
  dns::WriteOptions writeOptions(uint32_t age_seconds);
  size_t writeStale(const Cache::Found& found, const dns::Query& query, size_t limit);
  size_t findForwarder(const dns::Query& query, size_t first) const;
  bool isOwnName(const dns::Query& query) const;
  const ForwardResult& permitted(const dns::Query& query, const ForwardResult& result, ForwardResult& room) const;
  bool isUrgent(const dns::Query& query, const resolve::Request& request) const;
  void forward(const Pending& pending, size_t forwarder, const std::shared_ptr<Timers>& timers);
  void refresh(const dns::Query& query, const resolve::Request& request);
  void refreshFrom(size_t forwarder, const std::shared_ptr<Refresh>& refresh);
  void onResult(const Pending& pending, size_t forwarder, const std::shared_ptr<Timers>& timers,
                const ForwardResult& result);
  std::chrono::nanoseconds clientResponseTime(size_t forwarder, BootClock::time_point now) const;
  bool mustVerify(const dns::Query& query, BootClock::time_point now) const;
  bool isWorseThanStale(const ForwardResult& result) const;
  void onClientResponseTimer(resolve::DeferredReply& pending);
  void cancel(resolve::DeferredReply& pending);
  bool putOff(resolve::DeferredReply& pending);
  bool answerStale(resolve::DeferredReply& pending);
  void remember(const dns::Query& query, const ForwardResult& result);
  size_t writeResult(const dns::Query& query, size_t limit, const ForwardResult& result);
  void finish(resolve::DeferredReply& pending, size_t size, resolve::DirectiveId by);

  const Options options_;
  net::DeadlineLadder client_response_timers_;
  net::DeadlineLadder cancel_timers_;
  const size_t place_;  // in the chain
  std::optional<records::EpochDomain::Reader> reader_;
  const Cache::FastPath fast_path_;
  std::shared_ptr<Cache> cache_;
  BlockPool pending_;
  AliasFollower aliases_;
  std::vector<std::unique_ptr<Forwarder>> forwarders_;              // in whose callbacks the pending queries are
  std::shared_ptr<const StoredResponse> last_remembered_;           // one of the queries that share it has cached it
  std::vector<uint8_t> room_;                                       // where late responses are written
  uint32_t rotation_ = 0;
};

}  // namespace idetcd::resolver
