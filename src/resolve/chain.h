// The handlers of one server block on one loop, in the order of directive/order.h. Loop thread only.
#pragma once

#include "dns/query.h"
#include "dns/server_cookies.h"
#include "resolve/cluster_zone.h"
#include "resolve/handler.h"
#include "resolve/query_meter.h"
#include "resolve/request.h"
#include "resolve/signed_query.h"

namespace idetcd::resolve {

// Asks the servers that the block forwards to on behalf of this process.
class InternalQueries {
 public:
  virtual ~InternalQueries() = default;
  // `done(answered)` at most once, possibly before this returns; `query` is borrowed for the call.
  virtual void ask(const dns::Query& query, const std::function<void(bool answered)>& done) = 0;
};

// REFUSED: what no handler answers.
QueryOutcome refuse(const dns::Query& query, size_t limit, uint16_t flags);

class Chain {
 public:
  // Supplied by directives beside handlers; null or false: the block has no such directive.
  struct Parts {
    std::shared_ptr<const Gate> gate;
    DirectiveId gate_directive = DirectiveNames::kServer;  // whose it is
    std::shared_ptr<RateLimiter> limiter;
    std::shared_ptr<const NsidSource> nsid;
    std::shared_ptr<const dns::ServerCookies> cookies;  // null: COOKIE options are ignored
    bool requires_cookie = false;                       // of clients over UDP
    std::shared_ptr<const SignatureRules> signatures;   // null: any TSIG is one of an unknown key
    QueryMeterSource meters;
    std::shared_ptr<const QueryObserver> log;
    std::shared_ptr<FailureObserver> errors;
    InternalQueries* internal_queries = nullptr;  // one of the handlers
    size_t bufsize = dns::kDefaultUdpPayload;  // of a UDP response, at most
    bool recursion_available = false;          // RA
    bool in_kernel = false;                    // what can be answered there (kernel/) is
  };
  Parts parts;

  // While the chain is built: whose handlers and parts are added from now on.
  void setDirective(DirectiveId id) { adding_ = id; }
  // The next handler.
  void add(std::unique_ptr<Handler> handler);
  // One that answers queries of other classes than IN only. The last one added is asked first.
  void addForOtherClasses(std::unique_ptr<Handler> handler);
  // One that answers AXFR and IXFR, and nothing else; the first one added is asked first. REFUSED if none answers.
  void addForTransfers(std::unique_ptr<Handler> handler);
  bool transfers() const { return !for_transfers_.empty(); }
  // One that answers NOTIFY (RFC 1996), and nothing else; the first one added is asked first. REFUSED if none answers.
  void addForNotifies(std::unique_ptr<Handler> handler);
  bool takesNotifies() const { return !for_notifies_.empty(); }
  // The cluster's names are the next handler. If nothing comes before them, they are looked up without the chain. Of several
  // clusters one whose zone is within another one's is asked before that.
  void addCluster(std::shared_ptr<const ClusterZone> cluster);

  // Whether an ordinary query (class IN, no option asked for) goes straight to the cluster's names.
  bool isDirect() const { return cluster_ && behind_cluster_ == 1 && clusters_ == 1 && hasHandlersOnly(); }
  // Whether the handlers are all that an ordinary query meets.
  bool hasHandlersOnly() const {
    return !parts.gate && !parts.log && !parts.limiter && !parts.requires_cookie &&
           !(parts.signatures && parts.signatures->requiresAny());
  }

  // The first one that is asked. Null: the block has none.
  const ClusterZone* cluster() const { return cluster_.get(); }
  DirectiveId clusterDirective() const { return cluster_directive_; }

  void prefetchBucket(const dns::Query& query) const {
    if (cluster_) cluster_->table().prefetchBucket(query.hash);
    for (Handler* handler : prefetching_) handler->prefetchBucket(query);
  }
  void prefetchEntry(const dns::Query& query) const {
    if (cluster_) cluster_->table().prefetchEntry(query.hash);
    for (Handler* handler : prefetching_) handler->prefetchEntry(query);
  }

  // Both write the response over the query. Never kNext. REQUIRES: isDirect(), and an ordinary query.
  // `is_metered`: whether QueryOutcome::answered_by is set, and handlers find `meter` in the request.
  template <bool is_metered = false>
  [[gnu::always_inline]] QueryOutcome askCluster(const dns::Query& query, Request& request,
                                                 QueryMeter* meter = nullptr) const {
    const uint16_t added = flags();
    QueryOutcome outcome = cluster_->answer(query, request.response_limit, added, request.now);
    if (outcome.isNext()) return askBehindCluster(outcome, query, request, meter);
    if (parts.errors) reportFailure(query);
    if constexpr (is_metered) outcome.answered_by = cluster_directive_;
    return outcome;
  }
  QueryOutcome answer(dns::Query& query, const Request& request) const;
  // The same. REQUIRES: hasHandlersOnly(), and an ordinary query.
  QueryOutcome askHandlers(const dns::Query& query, const Request& request) const {
    return runFrom(0, query, request, flags());
  }

  // For a handler that asks those behind it: what they answer to a query of class IN, from the `first` one on, else
  // REFUSED. As answer(), inside a ReadSection, without what applies to the whole block.
  QueryOutcome runFrom(size_t first, const dns::Query& query, const Request& request, uint16_t flags) const;
  size_t size() const { return handlers_.size(); }
  // Answers `query`, of class IN, as an inner question of that client: from the gate, and from what has to be signed,
  // then from the handlers before the one at `end`; kNext if none of them answers. As runFrom().
  QueryOutcome answerInner(const dns::Query& query, const Request& request, size_t end) const;

  // Of one of the handlers.
  bool hasZoneAbove(std::span<const uint8_t> name) const;
  bool isBusy() const;

 private:
  class ClusterHandler;
  struct Link {
    std::unique_ptr<Handler> handler;
    DirectiveId directive;
  };
  uint16_t flags() const { return parts.recursion_available ? dns::kFlagRa : 0; }
  QueryOutcome askBehindCluster(QueryOutcome next, const dns::Query& query, Request& request, QueryMeter* meter) const;
  QueryOutcome runLimited(dns::Query& query, const Request& request) const;
  QueryOutcome runWithLimiter(dns::Query& query, const Request& request) const;
  QueryOutcome runGated(dns::Query& query, const Request& request) const;
  QueryOutcome runSigned(const dns::Query& query, const Request& request) const;
  QueryOutcome runAdmitted(const dns::Query& query, const Request& request) const;
  QueryOutcome askForCookie(const dns::Query& query, const Request& request) const;
  QueryOutcome runHandlers(size_t first, size_t end, const dns::Query& query, const Request& request,
                           uint16_t flags) const;
  QueryOutcome runBehind(QueryOutcome next, size_t index, size_t end, const dns::Query& query, const Request& request,
                         uint16_t flags) const;
  QueryOutcome runSeparate(const std::vector<Link>& links, const dns::Query& query, const Request& request) const;
  void reportFailure(const dns::Query& query) const;
  QueryOutcome judge(const dns::Query& query, const Request& request) const;

  DirectiveId adding_ = DirectiveNames::kServer;
  DirectiveId cluster_directive_ = DirectiveNames::kServer;
  std::vector<Link> handlers_;
  std::vector<Link> for_other_classes_;  // the last one first
  std::vector<Link> for_transfers_;
  std::vector<Link> for_notifies_;
  std::vector<Handler*> prefetching_;
  std::shared_ptr<const ClusterZone> cluster_;
  size_t clusters_ = 0;
  size_t behind_cluster_ = 0;  // the handler that comes after the cluster's names
};

// An immediate response after `limiter`, which may be null.
QueryOutcome limitOutcome(RateLimiter* limiter, const dns::Query& query, const Request& request, QueryOutcome outcome,
                          uint32_t wildcard = 0);

}  // namespace idetcd::resolve
