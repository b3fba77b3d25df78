// Completes this server's own answers whose last CNAME leads to a name that their source does not hold, as clients that
// are no full resolvers need it: asks the whole server for the target, as that client (other blocks, hosts, the cluster,
// upstreams), as AliasFollower does for the answers of upstreams. One per server block and loop; loop thread only.
#pragma once

#include "records/epoch.h"
#include "resolve/chain.h"
#include "resolver/alias_follower.h"

namespace idetcd::resolver {

class AliasCompletion {
 public:
  struct Options {
    HashSeed hash_seed = 0;                                             // of the chain's queries
    resolve::DirectiveId directive = resolve::DirectiveNames::kServer;  // who has answered
    bool rotates = false;                                               // the order of addresses (`loadbalance`)
    std::vector<IpNetwork> preferred{};
  };

  // REQUIRES: the chain, and `epochs`, outlive this.
  AliasCompletion(const resolve::Chain& chain, net::EventLoop& loop, records::EpochDomain& epochs, Options options);

  // `size`: of the answer in the query's buffer. That answer as it is, where there is nothing to complete: it has no
  // such CNAME, nobody else has the target, or the question is an inner one, whose asker follows aliases by itself, or
  // without RD. Else the whole answer later: with AA as the first owner is ours (RFC 1035 §4.1.1); SERVFAIL if the target
  // cannot be resolved. `wildcard`: as for RateLimiter::judge().
  resolve::QueryOutcome complete(const dns::Query& query, const resolve::Request& request, size_t size,
                                 uint32_t wildcard = 0);

  // Whether an answer is still to come.
  bool isBusy() const { return waiting_ > 0; }

 private:
  resolve::QueryOutcome answerHere(const dns::Query& query, const resolve::Request& request);
  void finish(resolve::DeferredReply& reply, const ForwardResult& result, std::span<const uint8_t> own_answer, uint32_t wildcard);
  size_t write(const dns::Query& query, size_t limit, const ForwardResult& result);

  const resolve::Chain& chain_;
  const Options options_;
  records::EpochDomain::Reader reader_;
  AliasFollower follower_;
  std::vector<uint8_t> room_;
  uint16_t rotation_ = 0;
  size_t waiting_ = 0;
};

}  // namespace idetcd::resolver
