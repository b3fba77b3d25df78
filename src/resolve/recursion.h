// Names of the rest of the world: from the cache, else through the forwarders. One per server block and loop; loop
// thread only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/block_pool.h"
#include "dns/query.h"
#include "net/deadline.h"
#include "net/event_loop.h"
#include "resolve/alias_follower.h"
#include "resolve/cache.h"
#include "resolve/error_log.h"
#include "resolve/forward.h"
#include "resolve/identity.h"
#include "resolve/pending_query.h"
#include "resolve/query_log.h"
#include "resolve/request.h"

namespace idetcd::resolve {

class Recursion {
 public:
  static constexpr std::chrono::milliseconds kPatience{1800};  // RFC 8767 §5: the client response timer

  struct Options {
    std::vector<dns::Name> cache_zones{dns::Name{}};  // whose names are cached
    // Ask the upstream before a stale answer is served, and serve it if there is no other after kPatience.
    bool verify_stale = false;
    bool minimal = false;
    bool loadbalance = false;
    // What this process has resolved by this server, as any program does: the hosts of its etcd. Asked for from this
    // machine they have room before all others.
    std::vector<dns::Name> own_names{};
    std::shared_ptr<const Identity> identity{};  // for the NSID of late answers; may be null
  };

  // `cache`, `log` and `errors` may be null. `forwarders` are asked in order: the first that serves a name, then, if
  // that one passes its answer's rcode on (`next`), the first behind it that does.
  Recursion(net::EventLoop& loop, Options options, std::unique_ptr<Cache> cache,
            std::vector<std::unique_ptr<Forwarder>> forwarders, std::shared_ptr<const QueryLog> log,
            std::shared_ptr<ErrorLog> errors);

  void prefetchSlot(const dns::Query& query) const {
    if (cache_) cache_->prefetchSlot(query);
  }
  void prefetchEntry(const dns::Query& query) const {
    if (cache_) cache_->prefetchEntry(query);
  }
  // The usual case of answer(), and fast: what the cache has at hand, else next. A name that must not be asked for
  // elsewhere is not in the cache either, so this may come before anybody has looked what the name is.
  Outcome answerAtHand(const dns::Query& query, const Request& request) {
    if (!cache_) return Outcome::next();
    const Cache::Written written = cache_->writeFresh(query, request.response_limit, request.now, plain_);
    if (written.wants_prefetch) [[unlikely]]
      refresh(query, request);
    return written.size > 0 ? Outcome::answer(written.size) : Outcome::next();
  }
  bool serves(const dns::Query& query) const { return findForwarder(query, 0) < forwarders_.size(); }
  // In place from the cache, pending, or next: no forwarder serves the name.
  Outcome answer(const dns::Query& query, const Request& request);

  // Has a question of our own resolved, past the cache. `done(answered)` at most once, possibly before this returns.
  void ask(const dns::Query& query, const std::function<void(bool answered)>& done);

  // Whether somebody waits for an upstream.
  bool isBusy() const;

  const Cache* cache() const { return cache_.get(); }

 private:
  using Pending = std::shared_ptr<PendingQuery>;
  struct Patience;
  struct Refresh;

  bool isCached(const dns::Query& query) const;
  Outcome answerFromCache(const dns::Query& query, const Request& request);
  WriteOptions writeOptions(uint32_t age_seconds);
  size_t writeStale(const Cache::Found& found, const dns::Query& query, size_t limit);
  size_t findForwarder(const dns::Query& query, size_t first) const;
  bool isUrgent(const dns::Query& query, const Request& request) const;
  void forward(const Pending& pending, size_t forwarder, const std::shared_ptr<Patience>& patience);
  void refresh(const dns::Query& query, const Request& request);
  void refreshFrom(size_t forwarder, const std::shared_ptr<Refresh>& refresh);
  void onResult(const Pending& pending, size_t forwarder, const std::shared_ptr<Patience>& patience,
                const ForwardResult& result);
  void onPatienceOver(PendingQuery& pending);
  bool answerStale(PendingQuery& pending);
  void remember(const dns::Query& query, const ForwardResult& result);
  size_t writeResult(const dns::Query& query, size_t limit, const ForwardResult& result);
  void finish(PendingQuery& pending, size_t size);

  const Options options_;
  net::DeadlineQueue patience_;
  const Cache::Plain plain_;
  std::unique_ptr<Cache> cache_;
  BlockPool pending_;
  AliasFollower aliases_;
  std::vector<std::unique_ptr<Forwarder>> forwarders_;  // in whose callbacks the pending queries are
  std::shared_ptr<const QueryLog> log_;
  std::shared_ptr<ErrorLog> errors_;
  std::shared_ptr<const StoredResponse> last_remembered_;  // those who share an answer need not all cache it
  std::vector<uint8_t> room_;                              // where late responses are written
  uint32_t rotation_ = 0;
};

}  // namespace idetcd::resolve
